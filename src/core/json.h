// JSON files with errors that name the file and the place in it.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qkscope {

using Json = nlohmann::json;

// `where` names the text in messages (a path). Nesting deeper than 200 levels is refused.
Json parse_json(std::string_view text, const std::string& where);
Json load_json(const std::string& path);

}  // namespace qkscope
