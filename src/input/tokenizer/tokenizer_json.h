// JSON access for tokenizer.json: a streaming reader for the large lists, and typed access to the
// small objects that describe components.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/io/json_fwd.h"
#include "input/tokenizer/tokenizer_components.h"

namespace qkscope {

// Streaming JSON reader that builds no tree, because a tokenizer.json contains hundreds of
// thousands of short strings.
class JsonCursor {
 public:
  // `text` must be valid UTF-8 and outlive the cursor. Error messages start with `where`.
  JsonCursor(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  // enter() steps into an object or list; next() advances to the next member and returns false at
  // the end.
  void enter(char open);
  bool next(char close);
  std::string_view key();

  // Returns the first character of the next value: { [ " t f n, a digit or a minus sign.
  char peek();
  // Returns the string value. The view is valid until the next string is read.
  std::string_view string();
  std::int64_t integer();
  // Skips one value of any kind and returns its text.
  std::string_view skip();
  // Throws a bad-input error if anything but white space follows.
  void finish();

  std::size_t position() const { return at_; }
  void seek(std::size_t position) { at_ = position; }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void skip_white_space();
  void expect(char c);
  std::string_view read_escaped_string(std::size_t begin);
  void read_escape();
  char32_t read_hex4();

  std::string_view text_;
  std::string where_;
  std::size_t at_ = 0;
  bool first_ = false;  // no member of the innermost object or list was read yet
  std::string buffer_;  // unescaped string
};

// One component ("normalizer", "decoder", ...) of a tokenizer.json. Errors name the component.
class ComponentSpec {
 public:
  // `part` is the key of the component in the file, for error messages.
  ComponentSpec(const Json& json, std::string part, std::string where);

  const std::string& type() const { return type_; }
  const std::string& where() const { return where_; }

  // Throws a bad-input error for keys that are neither "type" nor listed: ignoring them could
  // change the ids.
  void refuse_other_keys(std::initializer_list<std::string_view> keys) const;

  bool flag(const std::string& key, std::optional<bool> fallback = std::nullopt) const;
  std::string text(const std::string& key,
                   std::optional<std::string> fallback = std::nullopt) const;
  std::int64_t integer(const std::string& key) const;
  const Json& list(const std::string& key) const;
  const Json& value(const std::string& key) const;
  // Reads "pattern": {"String": ...} or {"Regex": ...}. A string pattern is also stored in
  // `literal`.
  Pattern pattern(std::string* literal = nullptr) const;

  [[noreturn]] void fail_unknown_type() const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  const Json& json_;
  std::string part_;
  std::string where_;
  std::string type_;
};

}  // namespace qkscope
