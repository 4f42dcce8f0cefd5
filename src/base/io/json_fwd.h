// Forward declaration of Json for headers: the full nlohmann/json header is slow to compile.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace qkscope {

using Json = nlohmann::json;

}  // namespace qkscope
