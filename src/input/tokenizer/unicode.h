// Character properties, lower case and normalization forms as the Hugging Face library sees them.
// The tables in unicode/ are written by tools/make_unicode_tables.py.
#pragma once

#include <cstdint>
#include <string_view>

#include "input/tokenizer/aligned_text.h"

namespace qkscope::unicode {

// Flags of a character. The names in comments are what the library's patterns write.
enum Property : std::uint16_t {
  kLetter = 1 << 0,       // \p{L}
  kNumber = 1 << 1,       // \p{N}
  kSpace = 1 << 2,        // \s
  kNewline = 1 << 3,      // [\r\n]
  kUpper = 1 << 4,        // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLower = 1 << 5,        // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kDigit = 1 << 6,        // what the pre-tokenizer Digits cuts out
  kPunctuation = 1 << 7,  // what the pre-tokenizer Punctuation cuts out
  kWord = 1 << 8,         // \w of the pre-tokenizer Whitespace
  kRegexWord = 1 << 9,    // \w
};

// The flags of every code point: one entry each, made on first use.
const std::uint16_t* properties();

inline bool has(char32_t code, std::uint16_t flags) {
  return (properties()[code] & flags) != 0;
}

// Lower case; empty where the character stays.
std::u32string_view lowercase(char32_t code);

// The normalization forms of Unicode; each value is a bit of its own.
enum class Form : std::uint8_t { nfc = 1, nfd = 2, nfkc = 4, nfkd = 8 };

void normalize(AlignedText& text, Form form);

}  // namespace qkscope::unicode
