// Forward declaration of Json for headers: the full nlohmann/json compiles slowly.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace qkscope {

using Json = nlohmann::json;

}  // namespace qkscope
