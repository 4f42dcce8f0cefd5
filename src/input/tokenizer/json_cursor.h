// Streaming JSON reader that builds no tree, because a tokenizer.json contains hundreds of
// thousands of short strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qkscope {

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
  // Throws bad input if anything but white space follows.
  void finish();

  std::size_t position() const { return at_; }
  void jump(std::size_t position) { at_ = position; }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void white_space();
  void expect(char c);
  std::string_view escaped_string(std::size_t begin);
  void escape();
  char32_t hex4();

  std::string_view text_;
  std::string where_;
  std::size_t at_ = 0;
  bool first_ = false;  // no member of the innermost object or list was read yet
  std::string buffer_;  // unescaped string
};

}  // namespace qkscope
