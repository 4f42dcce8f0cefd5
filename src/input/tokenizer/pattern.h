// Patterns that Split and Replace search for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "input/tokenizer/aligned_text.h"

namespace qkscope {

// A range of text that either matched the pattern or lies between two matches.
struct Match {
  Span range;
  bool matched;
};

struct Pattern {
  // Appends matches and the gaps between them in order; together they cover `text`. Positions are
  // relative to the start of `text`.
  std::function<void(std::string_view text, std::vector<Match>& matches)> find;
  // True if no match can ever span a non-space character followed by U+0020, so that a text may be
  // cut there.
  bool breaks_before_space = false;
  // True if no match can ever span an ideograph followed by punctuation.
  bool breaks_after_ideograph = false;
};

// The splitting expressions of known model families.
inline constexpr const char* kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Llama 3, SmolLM3 and GLM 4.
inline constexpr const char* kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kTekkenExpression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Returns a hand-written matcher for the expression of a known model family, else nullopt.
std::optional<Pattern> make_family_pattern(std::string_view expression);
// Compiles any expression with PCRE2. Throws bad input in builds without PCRE2 (pcre2_absent.cpp).
// Error messages start with `where`.
Pattern make_pcre2_pattern(const std::string& expression, const std::string& where);
// Uses make_family_pattern() if possible, else make_pcre2_pattern().
Pattern make_regex_pattern(const std::string& expression, const std::string& where);

Pattern make_string_pattern(std::string literal);
// Every character with one of the unicode.h flags is a match of its own.
Pattern make_property_pattern(std::uint16_t flags);
// The expression \w+|[^\w\s]+ of the pre-tokenizer Whitespace.
Pattern make_words_pattern();

}  // namespace qkscope
