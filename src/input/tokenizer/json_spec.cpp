#include "input/tokenizer/json_spec.h"

#include <algorithm>

#include "base/core/error.h"
#include "base/io/json.h"

namespace qkscope {

JsonSpec::JsonSpec(const Json& json, std::string part, std::string where)
    : json_(json), part_(std::move(part)), where_(std::move(where)) {
  if (!json.is_object()) fail("must be an object");
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) fail("has no \"type\"");
  type_ = type->get<std::string>();
}

void JsonSpec::allow(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : json_.items()) {
    if (key != "type" && std::find(keys.begin(), keys.end(), key) == keys.end())
      fail(fmt::format("has the key \"{}\", which qkscope does not know", key));
  }
}

const Json& JsonSpec::value(const std::string& key) const {
  const auto found = json_.find(key);
  if (found == json_.end()) fail(fmt::format("has no \"{}\"", key));
  return *found;
}

bool JsonSpec::flag(const std::string& key, std::optional<bool> fallback) const {
  if (fallback && json_.value(key, Json()).is_null()) return *fallback;
  const Json& found = value(key);
  if (!found.is_boolean()) fail(fmt::format("\"{}\" must be true or false", key));
  return found.get<bool>();
}

std::string JsonSpec::text(const std::string& key, std::optional<std::string> fallback) const {
  if (fallback && json_.value(key, Json()).is_null()) return *fallback;
  const Json& found = value(key);
  if (!found.is_string()) fail(fmt::format("\"{}\" must be a string", key));
  return found.get<std::string>();
}

std::int64_t JsonSpec::integer(const std::string& key) const {
  const Json& found = value(key);
  if (!found.is_number_integer()) fail(fmt::format("\"{}\" must be an integer", key));
  return found.get<std::int64_t>();
}

const Json& JsonSpec::list(const std::string& key) const {
  const Json& found = value(key);
  if (!found.is_array()) fail(fmt::format("\"{}\" must be a list", key));
  return found;
}

Pattern JsonSpec::pattern(std::string* literal) const {
  const Json& found = value("pattern");
  if (found.is_object() && found.size() == 1 && found.begin()->is_string()) {
    const auto content = found.begin()->get<std::string>();
    if (content.empty()) fail("has an empty pattern");
    if (found.begin().key() == "String") {
      if (literal != nullptr) *literal = content;
      return make_string_pattern(content);
    }
    if (found.begin().key() == "Regex")
      return make_regex_pattern(content, fmt::format("{}: {} {}", where_, part_, type_));
  }
  fail("\"pattern\" must be {\"String\": ...} or {\"Regex\": ...}");
}

void JsonSpec::unknown_type() const {
  bad_input("{}: the {} type \"{}\" is not one that qkscope knows", where_, part_, type_);
}

void JsonSpec::fail(const std::string& what) const {
  bad_input("{}: {}{}{} {}", where_, part_, type_.empty() ? "" : " ", type_, what);
}

}  // namespace qkscope
