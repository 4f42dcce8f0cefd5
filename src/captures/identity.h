// What tells one capture from another: the configuration that decides its rows and bytes.
#pragma once

#include <string>
#include <vector>

#include "io/json.h"

namespace qkscope {

// 16 hex digits.
std::string config_hash(const Json& effective);

// "capture.min_bucket_size: 128 there, 256 now", one per difference.
std::vector<std::string> config_differences(const Json& there, const Json& now);

}  // namespace qkscope
