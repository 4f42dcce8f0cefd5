// Json by name only, for headers that pass it on: the whole of nlohmann/json takes long to compile.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace qkscope {

using Json = nlohmann::json;

}  // namespace qkscope
