#include "base/core/utf8.h"

#include <cstring>

#include "qkscope/experimental/text.h"

namespace qkscope::utf8 {
namespace {

struct Checked {
  std::uint32_t size;  // bytes of the character or invalid sequence
  bool valid;
};

// Checks the first character of `text`. An invalid one has the size of its longest valid prefix, at
// least one byte.
Checked check(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::uint32_t size = length(text[0]);
  // Some first bytes restrict the second: no overlong forms, surrogates or codes above U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (text.size() < 2 || byte(1) < low || byte(1) > high) return {1, false};
  for (std::uint32_t i = 2; i < size; ++i) {
    if (text.size() <= i || !is_continuation(text[i])) return {i, false};
  }
  return {size, true};
}

// Skips ASCII in 8-byte words.
std::size_t skip_ascii(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if (word & 0x8080808080808080u) break;
    at += 8;
  }
  return at;
}

}  // namespace

void append(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string encode(char32_t code) {
  std::string text;
  append(text, code);
  return text;
}

std::size_t count(std::string_view text) {
  std::size_t characters = 0;
  for (const char byte : text) characters += !is_continuation(byte);
  return characters;
}

std::size_t find_invalid(std::string_view text) {
  std::size_t at = 0;
  while ((at = skip_ascii(text, at)) < text.size()) {
    const Checked next = check(text.substr(at));
    if (!next.valid) return at;
    at += next.size;
  }
  return std::string_view::npos;
}

std::string replace_invalid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Checked next = check(text.substr(at));
    if (next.valid) {
      out.append(text.substr(at, next.size));
    } else {
      append(out, 0xFFFD);
    }
    at += next.size;
  }
  return out;
}

}  // namespace qkscope::utf8

std::size_t qkscope::find_invalid_utf8(std::string_view text) {
  return utf8::find_invalid(text);
}

std::string qkscope::replace_invalid_utf8(std::string_view text) {
  return utf8::replace_invalid(text);
}
