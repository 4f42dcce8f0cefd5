// JSON parsing with errors that name the file, line and column.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qkscope {

using Json = nlohmann::json;

// Treatment of duplicate keys in a JSON object. Most JSON parsers keep the last one.
enum class DuplicateKeyPolicy { last_wins, refuse };

// Parses JSON text; `where` (a path) begins every error message. Throws a bad-input error for
// invalid JSON, nesting deeper than 200 levels, more than 4 million values or more than 256 MiB.
Json parse_json(std::string_view text, const std::string& where,
                DuplicateKeyPolicy repeated = DuplicateKeyPolicy::last_wins);
Json load_json(const std::string& path);

// Writes JSON and a final newline atomically. Invalid UTF-8 becomes U+FFFD.
void write_json_file(const std::string& path, const Json& json, int indent = 2);

}  // namespace qkscope
