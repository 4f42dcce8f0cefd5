// What a Split or Replace looks for in a text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "input/tokenizer/aligned_text.h"

namespace qkscope {

// A stretch of text that a pattern matched, or the stretch between two matches.
struct Match {
  Span range;
  bool matched;
};

class Pattern {
 public:
  virtual ~Pattern() = default;
  // Appends the stretches of `text` in order; together they cover it. Positions count from the
  // start of `text`.
  virtual void find(std::string_view text, std::vector<Match>& stretches) const = 0;
  // Whether a match never crosses from a character that is not white space to U+0020, whatever
  // surrounds them, so that a text can be cut there.
  virtual bool breaks_before_space() const { return false; }
  // The same between an ideograph and punctuation.
  virtual bool breaks_after_ideograph() const { return false; }
};

using PatternPointer = std::unique_ptr<const Pattern>;

PatternPointer make_string_pattern(std::string literal);
// Characters that have any of the flags of unicode.h, each a match of its own.
PatternPointer make_property_pattern(std::uint16_t flags);
// \w+|[^\w\s]+
PatternPointer make_words_pattern();
// One of the known families' expressions by hand, anything else through PCRE2. `where` names the
// expression in messages.
PatternPointer make_regex_pattern(const std::string& expression, const std::string& where);

}  // namespace qkscope
