// JSON input and output of the programs.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "qkscope/experimental/text.h"

namespace qkscope::cli {

using Json = nlohmann::json;

// Parses JSON from outside the program; `where` names its source in error messages.
inline Json parse_json(const std::string& text, const std::string& where) {
  check_json(text, where);
  return Json::parse(text);
}

// Writes JSON on one line, or indented. Invalid UTF-8 is replaced by U+FFFD.
inline std::string dump_json(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace qkscope::cli
