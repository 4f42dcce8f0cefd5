// Patterns that Split and Replace search for.
#pragma once

#include <memory>
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

class Pattern {
 public:
  virtual ~Pattern() = default;
  // Appends matches and the gaps between them in order; together they cover `text`. Positions are
  // relative to the start of `text`.
  virtual void find(std::string_view text, std::vector<Match>& stretches) const = 0;
  // Returns true if no match can ever span a non-space character followed by U+0020, so that a text
  // may be cut there.
  virtual bool breaks_before_space() const { return false; }
  // Returns true if no match can ever span an ideograph followed by punctuation.
  virtual bool breaks_after_ideograph() const { return false; }
};

using PatternPointer = std::unique_ptr<const Pattern>;

PatternPointer make_string_pattern(std::string literal);
// Every character with one of the unicode.h flags is a match of its own.
PatternPointer make_property_pattern(std::uint16_t flags);
// The expression \w+|[^\w\s]+ of the pre-tokenizer Whitespace.
PatternPointer make_words_pattern();
// Uses a hand-written matcher for the expressions of known model families and PCRE2 otherwise.
// Error messages start with `where`.
PatternPointer make_regex_pattern(const std::string& expression, const std::string& where);

}  // namespace qkscope
