#include <algorithm>
#include <charconv>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "input/tokenizer/tokenizer_components.h"

namespace qkscope {
namespace {

constexpr int kMaxDepth = 200;

bool is_json_white_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

void JsonCursor::fail(const std::string& what) const {
  const auto before = text_.substr(0, std::min(at_, text_.size()));
  reject("{}: {} at line {}, byte {}", where_, what, 1 + std::ranges::count(before, '\n'), at_);
}

void JsonCursor::skip_white_space() {
  while (at_ < text_.size() && is_json_white_space(text_[at_])) ++at_;
}

char JsonCursor::peek() {
  skip_white_space();
  if (at_ == text_.size()) fail("JSON ends too early");
  return text_[at_];
}

void JsonCursor::expect_character(char c) {
  if (peek() != c) fail(fmt::format("expected '{}', found '{}'", c, text_[at_]));
  ++at_;
}

void JsonCursor::enter_container(char open) {
  expect_character(open);
  first_ = true;
}

bool JsonCursor::next_member(char close) {
  const bool first = first_;
  first_ = false;
  if (peek() == close) {
    ++at_;
    return false;
  }
  if (!first) expect_character(',');
  return true;
}

std::string_view JsonCursor::read_key() {
  const std::string_view found = read_string();
  expect_character(':');
  return found;
}

std::string_view JsonCursor::read_string() {
  expect_character('"');
  const std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
         static_cast<unsigned char>(text_[at_]) >= 0x20)
    ++at_;
  if (at_ == text_.size()) fail("a string has no end");
  if (text_[at_] == '"') return text_.substr(begin, at_++ - begin);
  return read_escaped_string(begin);
}

std::string_view JsonCursor::read_escaped_string(std::size_t begin) {
  buffer_.assign(text_.substr(begin, at_ - begin));
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      return buffer_;
    }
    if (static_cast<unsigned char>(c) < 0x20) fail("a string holds a control character");
    if (c == '\\') {
      read_escape();
    } else {
      buffer_.push_back(c);
    }
  }
  fail("a string has no end");
}

char32_t JsonCursor::read_hex4() {
  if (text_.size() - at_ < 5) fail("a string has no end");
  const auto code = parse_number<std::uint32_t>(text_.substr(at_ + 1, 4), 16);
  if (!code) fail("\\u is not followed by four digits");
  at_ += 4;
  return *code;
}

// Reads an escape sequence: starts at the backslash and leaves the cursor at the last byte.
void JsonCursor::read_escape() {
  ++at_;
  if (at_ == text_.size()) fail("a string has no end");
  constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  if (const auto found = kEscapes.find(text_[at_]); found != std::string_view::npos)
    return buffer_.push_back(kMeanings[found]);
  if (text_[at_] != 'u') fail(fmt::format("unknown escape '\\{}'", text_[at_]));
  char32_t code = read_hex4();
  if (code >= 0xD800 && code < 0xE000) {
    const bool pair = code < 0xDC00 && text_.substr(at_ + 1).starts_with("\\u");
    if (!pair) fail("half a surrogate pair");
    at_ += 2;
    const char32_t low = read_hex4();
    if (low < 0xDC00 || low >= 0xE000) fail("half a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  utf8::append_code_point(buffer_, code);
}

std::int64_t JsonCursor::read_integer() {
  peek();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  if (error != std::errc()) fail("expected an integer");
  at_ = static_cast<std::size_t>(end - text_.data());
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E'))
    fail("expected an integer");
  return value;
}

std::string_view JsonCursor::read_raw_value() {
  peek();
  const std::size_t begin = at_;
  int depth = 0;
  do {
    const char c = peek();
    if (c == '"') {
      read_string();
      continue;
    }
    if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) fail("JSON is nested too deep");
    } else if (c == '}' || c == ']') {
      if (--depth < 0) fail("expected a value");
    } else if (c != ',' && c != ':') {  // a number or literal, up to the next delimiter
      while (at_ < text_.size() && !is_json_white_space(text_[at_]) &&
             std::string_view(",:{}[]\"").find(text_[at_]) == std::string_view::npos)
        ++at_;
      continue;
    } else if (depth == 0) {
      fail("expected a value");
    }
    ++at_;
  } while (depth > 0);
  return text_.substr(begin, at_ - begin);
}

void JsonCursor::expect_end() {
  skip_white_space();
  if (at_ != text_.size()) fail("there is more after the end of the JSON");
}

TokenizerComponentSpec::TokenizerComponentSpec(const Json& json, std::string part,
                                               std::string where)
    : json_(json), part_(std::move(part)), where_(std::move(where)) {
  if (!json.is_object()) fail("must be an object");
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) fail("has no \"type\"");
  type_ = type->get<std::string>();
}

bool TokenizerComponentSpec::has_type(std::string_view type,
                                      std::initializer_list<std::string_view> keys) const {
  if (type_ != type) return false;
  for (const auto& [key, value] : json_.items()) {
    if (key != "type" && std::ranges::find(keys, key) == keys.end())
      fail(fmt::format("has the key \"{}\", which qkscope does not know", key));
  }
  return true;
}

const Json& TokenizerComponentSpec::value(const std::string& key) const {
  const auto found = json_.find(key);
  if (found == json_.end()) fail(fmt::format("has no \"{}\"", key));
  return *found;
}

bool TokenizerComponentSpec::flag(const std::string& key, std::optional<bool> fallback) const {
  if (fallback && json_.value(key, Json()).is_null()) return *fallback;
  const Json& found = value(key);
  if (!found.is_boolean()) fail(fmt::format("\"{}\" must be true or false", key));
  return found.get<bool>();
}

std::string TokenizerComponentSpec::text(const std::string& key,
                                         std::optional<std::string> fallback) const {
  if (fallback && json_.value(key, Json()).is_null()) return *fallback;
  const Json& found = value(key);
  if (!found.is_string()) fail(fmt::format("\"{}\" must be a string", key));
  return found.get<std::string>();
}

std::string TokenizerComponentSpec::character(const std::string& key) const {
  auto found = text(key);
  if (utf8::count_characters(found) != 1) fail(fmt::format("\"{}\" must be one character", key));
  return found;
}

std::int64_t TokenizerComponentSpec::integer(const std::string& key) const {
  const Json& found = value(key);
  if (!found.is_number_integer()) fail(fmt::format("\"{}\" must be an integer", key));
  return found.get<std::int64_t>();
}

const Json& TokenizerComponentSpec::list(const std::string& key) const {
  const Json& found = value(key);
  if (!found.is_array()) fail(fmt::format("\"{}\" must be a list", key));
  return found;
}

SearchPattern TokenizerComponentSpec::read_pattern(std::string* literal) const {
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

void TokenizerComponentSpec::fail_unknown_type() const {
  reject("{}: the {} type \"{}\" is not one that qkscope knows", where_, part_, type_);
}

void TokenizerComponentSpec::fail(const std::string& what) const {
  reject("{}: {}{}{} {}", where_, part_, type_.empty() ? "" : " ", type_, what);
}

}  // namespace qkscope
