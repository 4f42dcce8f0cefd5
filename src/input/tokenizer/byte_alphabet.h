// The alphabet of byte-level tokenizers: one printable character for each of the 256 bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qkscope {

char32_t byte_to_character(unsigned char byte);
std::optional<unsigned char> character_to_byte(char32_t character);

// Bytes of the byte's character in UTF-8.
inline std::uint32_t size_in_byte_alphabet(unsigned char byte) {
  return byte >= '!' && byte <= '~' ? 1 : 2;
}

// Each byte as its character, in UTF-8.
std::string to_byte_alphabet(std::string_view bytes);

// The inverse; false when some character is outside the alphabet.
bool from_byte_alphabet(std::string_view text, std::string& bytes);

}  // namespace qkscope
