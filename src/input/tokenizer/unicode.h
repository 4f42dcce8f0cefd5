// Character properties, lower-casing and Unicode normalization with the tables of the Hugging Face
// tokenizers library. tools/make_unicode_tables.py generates the tables in unicode/.
#pragma once

#include <cstdint>
#include <string_view>

#include "input/tokenizer/aligned_text.h"

namespace qkscope::unicode {

// U+2581, which SentencePiece and Metaspace use in place of a space.
inline constexpr char32_t kSpaceMark = 0x2581;
inline constexpr std::string_view kSpaceMarkUtf8 = "\xE2\x96\x81";

// Property flags of a character, with the regular expression each one corresponds to.
enum Property : std::uint16_t {
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
const std::uint16_t* properties();

inline bool has(char32_t code, std::uint16_t flags) {
  return (properties()[code] & flags) != 0;
}

// Returns the lower-case mapping, or an empty view if the character is unchanged.
std::u32string_view lowercase(char32_t code);

// Unicode normalization forms, one bit each.
enum class Form : std::uint8_t { nfc = 1, nfd = 2, nfkc = 4, nfkd = 8 };

void normalize(AlignedText& text, Form form);

}  // namespace qkscope::unicode
