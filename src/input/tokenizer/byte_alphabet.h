// The alphabet of byte-level tokenizers: one printable character for each of the 256 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/core/utf8.h"

namespace qkscope {

struct ByteAlphabet {
  static constexpr char32_t kFirstShifted = 0x100;  // unprintable bytes map to this and following

  std::array<char32_t, 256> character{};
  std::array<std::int16_t, kFirstShifted + 256> byte{};  // -1 if the character is no byte

  constexpr ByteAlphabet() {
    byte.fill(-1);
    char32_t next = kFirstShifted;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = printable ? b : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};
inline constexpr ByteAlphabet kByteAlphabet;

inline char32_t byte_to_character(char byte) {
  return kByteAlphabet.character[static_cast<unsigned char>(byte)];
}

// Size in bytes of the UTF-8 encoding of byte_to_character(byte).
inline std::uint32_t size_in_byte_alphabet(char byte) {
  return byte >= '!' && byte <= '~' ? 1 : 2;
}

// Encodes every byte as its character, in UTF-8.
inline std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) utf8::append_code_point(text, byte_to_character(byte));
  return text;
}

// Inverse of to_byte_alphabet(). Returns false if a character is not in the alphabet.
inline bool from_byte_alphabet(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, size] = utf8::decode(text.data() + at);
    if (code >= kByteAlphabet.byte.size() || kByteAlphabet.byte[code] < 0) return false;
    bytes.push_back(static_cast<char>(kByteAlphabet.byte[code]));
    at += size;
  }
  return true;
}

}  // namespace qkscope
