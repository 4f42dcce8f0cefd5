// JSON files with errors that name the file and the place in it.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qkscope {

using Json = nlohmann::json;

// What to do with a key that an object holds twice: most readers let the last one win.
enum class RepeatedKeys { last_wins, refuse };

// `where` names the text in messages (a path). Refused are nesting deeper than
// 200 levels, more than 4 million values and more than 256 MiB.
Json parse_json(std::string_view text, const std::string& where,
                RepeatedKeys repeated = RepeatedKeys::last_wins);
Json load_json(const std::string& path);

}  // namespace qkscope
