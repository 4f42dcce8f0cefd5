// Character properties, lower-casing and Unicode normalization with the same tables as the Hugging
// Face tokenizers library, and the alphabet of byte-level tokenizers. tools/make_unicode_tables.py
// generates the tables in unicode/.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/core/text.h"

namespace qkscope {
class SourceMappedText;
}

namespace qkscope::unicode {

// U+2581, which SentencePiece and Metaspace use in place of a space.
inline constexpr char32_t kSpaceMark = 0x2581;
inline constexpr std::string_view kSpaceMarkUtf8 = "\xE2\x96\x81";

// Property flags of a character, with the corresponding regular expressions.
enum CharacterProperty : std::uint16_t {
  kLetter = 1 << 0,       // \p{L}
  kNumber = 1 << 1,       // \p{N}
  kSpace = 1 << 2,        // \s
  kNewline = 1 << 3,      // [\r\n]
  kUpper = 1 << 4,        // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLower = 1 << 5,        // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kDigit = 1 << 6,        // characters that the pre-tokenizer Digits splits off
  kPunctuation = 1 << 7,  // characters that the pre-tokenizer Punctuation splits off
  kWord = 1 << 8,         // \w of the pre-tokenizer Whitespace
  kRegexWord = 1 << 9,    // \w
};

// Returns the flags of every code point, indexed by code point. Built on first use.
const std::uint16_t* character_property_table();

inline bool has_character_property(char32_t code, std::uint16_t flags) {
  return (character_property_table()[code] & flags) != 0;
}

// Returns the lower-case mapping, or an empty view if the character is unchanged.
std::u32string_view lowercase(char32_t code);

// Unicode normalization forms, one bit each.
enum NormalizationForm : std::uint8_t { kNfc = 1, kNfd = 2, kNfkc = 4, kNfkd = 8 };

void normalize(SourceMappedText& text, NormalizationForm form);

}  // namespace qkscope::unicode

namespace qkscope {

// The alphabet of byte-level tokenizers: one printable character for each of the 256 bytes.
struct ByteAlphabet {
  static constexpr char32_t kFirstShifted = 0x100;  // first character for unprintable bytes

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

inline char32_t byte_alphabet_char(char byte) {
  return kByteAlphabet.character[static_cast<unsigned char>(byte)];
}

// Size in bytes of the UTF-8 encoding of byte_alphabet_char(byte).
inline std::uint32_t utf8_length_in_byte_alphabet(char byte) {
  return byte >= '!' && byte <= '~' ? 1 : 2;
}

// Converts `bytes` to the byte-level BPE alphabet of GPT-2: one character per byte.
inline std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) utf8::append_code_point(text, byte_alphabet_char(byte));
  return text;
}

// Inverse of to_byte_alphabet(). Returns false if a character is not in the alphabet.
inline bool decode_byte_alphabet(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, size] = utf8::decode_character(text.data() + at);
    if (code >= kByteAlphabet.byte.size() || kByteAlphabet.byte[code] < 0) return false;
    bytes.push_back(static_cast<char>(kByteAlphabet.byte[code]));
    at += size;
  }
  return true;
}

}  // namespace qkscope
