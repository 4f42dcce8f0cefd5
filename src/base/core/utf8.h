// UTF-8, read and written one character at a time, and checked as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qkscope::utf8 {

struct Decoded {
  char32_t code;
  std::uint32_t size;  // bytes
};

inline bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// Bytes of the character that starts with `lead`.
inline std::uint32_t length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The character at `at`, which must be the start of one in valid UTF-8.
inline Decoded decode(const char* at) {
  const auto byte = [at](int i) {
    return static_cast<char32_t>(static_cast<unsigned char>(at[i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

// The character that ends before `end`; there must be one.
inline Decoded decode_last(const char* end) {
  std::uint32_t size = 1;
  while (is_continuation(end[-static_cast<std::ptrdiff_t>(size)])) ++size;
  return decode(end - size);
}

void append(std::string& text, char32_t code);
std::string encode(char32_t code);
std::size_t count(std::string_view text);  // characters

// The position of the first byte that is not part of valid UTF-8, npos when all is well.
std::size_t find_invalid(std::string_view text);

// Each longest piece that begins like a character and is none becomes U+FFFD.
std::string replace_invalid(std::string_view text);

}  // namespace qkscope::utf8
