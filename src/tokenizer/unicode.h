// Character properties as the Hugging Face library sees them (tools/make_unicode_tables.py).
#pragma once

#include <cstdint>
#include <string_view>

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

// Order among combining marks; 0 for a character that starts a new group.
std::uint8_t combining_rank(char32_t code);

// Full decomposition without Hangul syllables; empty where the character stays.
std::u32string_view canonical_decomposition(char32_t code);
std::u32string_view compatible_decomposition(char32_t code);

// The composed character, 0 when the two do not compose. Hangul included.
char32_t compose(char32_t first, char32_t second);

// Whether some character before this one could compose with it.
bool composes_backwards(char32_t code);

// Normalization forms, as bits.
enum Form : std::uint8_t { kNfc = 1, kNfd = 2, kNfkc = 4, kNfkd = 8 };

// For every code point the forms in which it is not settled: it changes, it is a combining mark, or
// it may compose with what stands before it. A text of settled characters is its own normal form.
const std::uint8_t* unsettled_forms();

// Lower case; empty where the character stays.
std::u32string_view lowercase(char32_t code);

}  // namespace qkscope::unicode
