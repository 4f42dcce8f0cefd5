// Reads large JSON front to back without building a tree: a tokenizer.json holds hundreds of
// thousands of short strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qkscope {

class JsonCursor {
 public:
  // `text` must be valid UTF-8 and outlive the cursor; `where` names it in messages.
  JsonCursor(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  // Steps into an object or list, and from member to member until false at its end.
  //   cursor.enter('{'); while (cursor.next('}')) { key = cursor.key(); ...read the value... }
  void enter(char open);
  bool next(char close);
  std::string_view key();

  // What the next value begins with: { [ " t f n or a digit or minus.
  char peek();
  // Valid until the next string is read.
  std::string_view string();
  std::int64_t integer();
  // Passes over one value of any kind and gives its text.
  std::string_view skip();
  // Nothing but white space may follow.
  void finish();

  std::size_t position() const { return at_; }
  void jump(std::size_t position) { at_ = position; }
  [[noreturn]] void wrong(const std::string& what) const;

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
  std::string buffer_;  // a string with escapes resolved
};

}  // namespace qkscope
