// JSON in and out of the programs.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "qkscope/experimental/text.h"

namespace qkscope::cli {

using Json = nlohmann::json;

// `where` names the text in messages.
inline Json parse_json(const std::string& text, const std::string& where) {
  check_json(text, where);
  return Json::parse(text);
}

}  // namespace qkscope::cli
