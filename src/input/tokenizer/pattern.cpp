#include "base/core/text.h"
#include "input/tokenizer/tokenizer_components.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

using unicode::kLetter, unicode::kLower, unicode::kNewline, unicode::kNumber, unicode::kSpace,
    unicode::kUpper;

constexpr std::uint16_t kWordOrSpace = kLetter | kNumber | kSpace;

struct Gpt2SplitRules {
  static constexpr bool kAnyCase = false;     // contractions match in any case
  static constexpr bool kSpacePrefix = true;  // only a space may precede a word
  static constexpr bool kCaseWords = false;  // words end where lower case is followed by upper case
  static constexpr unsigned kDigits = 0;     // maximum digits per piece; 0: unlimited
  static constexpr bool kLineEnds = false;   // line breaks are pieces of their own
  [[maybe_unused]] static constexpr bool kSlash = false;  // slashes may follow punctuation
};
struct Llama3SplitRules {
  static constexpr bool kAnyCase = true, kSpacePrefix = false, kCaseWords = false;
  static constexpr unsigned kDigits = 3;
  static constexpr bool kLineEnds = true, kSlash = false;
};
struct Qwen2SplitRules : Llama3SplitRules {
  static constexpr unsigned kDigits = 1;
};
struct TekkenSplitRules : Llama3SplitRules {
  static constexpr bool kCaseWords = true, kSlash = true;
  static constexpr unsigned kDigits = 1;
};

// Hand-written matcher of a split regex. Each match_*() function tries one alternative and returns
// the end of the match, or the start without a match. The first alternative that matches wins, as
// in a backtracking regex engine.
template <typename Family>
class SplitRegexMatcher {
 public:
  explicit SplitRegexMatcher(std::string_view text)
      : end_(text.data() + text.size()), properties_(unicode::character_property_table()) {}

  // Returns the end of the match that starts at `at`; `at` must not be the end of the text.
  const char* match_piece(const char* at) const {
    const Character first = read_character(at);
    if (const char* end = match_contraction(at); end != at) return end;
    if (const char* end = match_word(at, first); end != at) return end;
    if (const char* end = match_number(at, first); end != at) return end;
    if (const char* end = match_punctuation(at, first); end != at) return end;
    return match_white_space(at);
  }

 private:
  struct Character {
    std::uint16_t flags;
    std::uint32_t size;
  };

  Character read_character(const char* at) const {
    const auto byte = static_cast<unsigned char>(*at);
    if (byte < 0x80) return {properties_[byte], 1};
    const auto [code, size] = utf8::decode_character(at);
    return {properties_[code], size};
  }

  // Returns the end of a run of characters that have any of the flags or, if !with, none of them.
  const char* skip_characters_of_class(const char* at, std::uint16_t flags,
                                       bool with = true) const {
    while (at < end_) {
      const Character next = read_character(at);
      if (((next.flags & flags) != 0) != with) break;
      at += next.size;
    }
    return at;
  }

  // Contractions: 's 't 're 've 'm 'll 'd.
  const char* match_contraction(const char* at) const {
    if constexpr (Family::kCaseWords) return at;
    if (*at != '\'' || end_ - at < 2) return at;
    const auto low = [](char c) { return Family::kAnyCase && c >= 'A' && c <= 'Z' ? c + 32 : c; };
    const int one = low(at[1]);
    if (one == 's' || one == 't' || one == 'm' || one == 'd') return at + 2;
    if (end_ - at < 3) return at;
    // Under case folding, U+017F (long s) equals s.
    if (Family::kAnyCase && at[1] == '\xC5' && at[2] == '\xBF') return at + 3;
    const int two = low(at[2]);
    const bool found =
        (one == 'r' && two == 'e') || (one == 'v' && two == 'e') || (one == 'l' && two == 'l');
    return found ? at + 3 : at;
  }

  // Words: ` ?\p{L}+` or `[^\r\n\p{L}\p{N}]?\p{L}+`.
  const char* match_word(const char* at, Character first) const {
    if constexpr (Family::kCaseWords) return match_cased_word(at, first);
    if (first.flags & kLetter) return skip_characters_of_class(at + first.size, kLetter);
    const bool prefix =
        Family::kSpacePrefix ? *at == ' ' : (first.flags & (kNumber | kNewline)) == 0;
    if (!prefix) return at;
    const char* letters = at + first.size;
    const char* end = skip_characters_of_class(letters, kLetter);
    return end == letters ? at : end;
  }

  // Words by case: `[^\r\n\p{L}\p{N}]?U*W+` or `[^\r\n\p{L}\p{N}]?U+W*`, where U is an uppercase or
  // uncased character and W is a lowercase or uncased one.
  const char* match_cased_word(const char* at, Character first) const {
    if (first.flags & (kNumber | kNewline)) return at;
    const char* start = first.flags & kLetter ? at : at + first.size;
    if (const char* end = match_upper_then_lower(start); end != start) return end;
    if (start != at)
      if (const char* end = match_upper_then_lower(at); end != at) return end;
    const char* end = skip_characters_of_class(start, kUpper);
    return end == start ? at : end;
  }

  // Matches `U*W+`: uppercase or uncased characters, then lowercase or uncased ones.
  const char* match_upper_then_lower(const char* start) const {
    const char* upper_end = start;
    const char* last_both = start;  // end of the last character that is both upper and lower
    while (upper_end < end_) {
      const Character next = read_character(upper_end);
      if ((next.flags & kUpper) == 0) break;
      upper_end += next.size;
      if (next.flags & kLower) last_both = upper_end;
    }
    const char* end = skip_characters_of_class(upper_end, kLower);
    return end != upper_end ? end : last_both;
  }

  // Numbers: ` ?\p{N}+`, `\p{N}{1,3}` or `\p{N}`.
  const char* match_number(const char* at, Character first) const {
    if constexpr (Family::kDigits == 0) {
      const char* start = *at == ' ' ? at + 1 : at;
      const char* end = skip_characters_of_class(start, kNumber);
      return end == start ? at : end;
    }
    if ((first.flags & kNumber) == 0) return at;
    at += first.size;
    for (unsigned i = 1; i < Family::kDigits && at < end_; ++i) {
      const Character next = read_character(at);
      if ((next.flags & kNumber) == 0) break;
      at += next.size;
    }
    return at;
  }

  // Punctuation: ` ?[^\s\p{L}\p{N}]+`, followed by `[\r\n]*` or `[\r\n/]*`.
  const char* match_punctuation(const char* at, Character first) const {
    const char* start = *at == ' ' ? at + 1 : at;
    if (start == at && (first.flags & kWordOrSpace)) return at;
    const char* end = skip_characters_of_class(start, kWordOrSpace, false);
    if (end == start) return at;
    if constexpr (Family::kLineEnds)
      while (end < end_ && (*end == '\r' || *end == '\n' || (Family::kSlash && *end == '/'))) ++end;
    return end;
  }

  // White space: `\s*[\r\n]+`, `\s+(?!\S)` or `\s+`.
  const char* match_white_space(const char* at) const {
    const char* end = at;
    const char* line_end = at;
    const char* last = at;  // start of the last character of the run
    while (end < end_) {
      const Character next = read_character(end);
      if ((next.flags & kSpace) == 0) break;
      last = end;
      end += next.size;
      if (next.flags & kNewline) line_end = end;
    }
    if (Family::kLineEnds && line_end != at) return line_end;
    return end == end_ || last == at ? end : last;
  }

  const char* end_;
  const std::uint16_t* properties_;
};

template <typename Family>
void split_by_regex(std::string_view text, std::vector<MatchOrGap>& matches) {
  const SplitRegexMatcher<Family> scanner(text);
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  for (const char* at = begin; at < end;) {
    const char* const next = scanner.match_piece(at);
    matches.push_back(
        {{static_cast<std::uint32_t>(at - begin), static_cast<std::uint32_t>(next - begin)}, true});
    at = next;
  }
}

ByteRange make_byte_range(std::size_t begin, std::size_t end) {
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
}

// Makes a pattern from next(text, from), which returns the first match at or after byte `from`.
// Matches are not empty.
template <typename Next>
SearchPattern make_search_pattern(const Next& next, bool breaks_before_space) {
  const auto find = [next](std::string_view text, std::vector<MatchOrGap>& pieces) {
    std::size_t end = 0;  // of the last piece
    const auto add_piece = [&](std::size_t until, bool matched) {
      if (end < until) pieces.push_back({make_byte_range(end, until), matched});
      end = until;
    };
    while (const std::optional<ByteRange> match = next(text, end)) {
      add_piece(match->begin, false);
      add_piece(match->end, true);
    }
    add_piece(text.size(), false);
  };
  return {.find = find, .breaks_before_space = breaks_before_space};
}

enum class CharacterKind { space, word, other };

CharacterKind character_kind_at(std::string_view text, std::size_t at) {
  const std::uint16_t flags =
      unicode::character_property_table()[utf8::decode_character(text.data() + at).code];
  if (flags & unicode::kWord) return CharacterKind::word;
  return flags & unicode::kSpace ? CharacterKind::space : CharacterKind::other;
}

}  // namespace

std::optional<SearchPattern> make_builtin_pattern(std::string_view expression) {
  const auto pattern = [](auto* find) { return SearchPattern{find, true, true}; };
  if (expression == kGpt2Expression) return pattern(split_by_regex<Gpt2SplitRules>);
  if (expression == kLlama3Expression) return pattern(split_by_regex<Llama3SplitRules>);
  if (expression == kQwen2Expression) return pattern(split_by_regex<Qwen2SplitRules>);
  if (expression == kTekkenExpression) return pattern(split_by_regex<TekkenSplitRules>);
  return std::nullopt;
}

SearchPattern make_string_pattern(std::string literal) {
  const auto next = [literal = std::move(literal)](std::string_view text, std::size_t from) {
    const auto at = text.find(literal, from);
    return at == text.npos ? std::nullopt : std::optional(make_byte_range(at, at + literal.size()));
  };
  return make_search_pattern(next, false);
}

SearchPattern make_unicode_class_pattern(std::uint16_t flags) {
  const auto next = [flags](std::string_view text, std::size_t at) -> std::optional<ByteRange> {
    while (at < text.size()) {
      const auto [code, size] = utf8::decode_character(text.data() + at);
      if (unicode::has_character_property(code, flags)) return make_byte_range(at, at + size);
      at += size;
    }
    return std::nullopt;
  };
  return make_search_pattern(next, (flags & unicode::kSpace) != 0);
}

SearchPattern make_word_or_punctuation_pattern() {
  const auto next = [](std::string_view text, std::size_t at) -> std::optional<ByteRange> {
    while (at < text.size()) {
      const auto kind = character_kind_at(text, at);
      const std::size_t begin = at;
      while (at < text.size() && character_kind_at(text, at) == kind)
        at += utf8::character_size(text[at]);
      if (kind != CharacterKind::space) return make_byte_range(begin, at);
    }
    return std::nullopt;
  };
  return make_search_pattern(next, true);
}

SearchPattern make_regex_pattern(const std::string& expression, const std::string& where) {
  if (auto family = make_builtin_pattern(expression)) return *family;
  return make_pcre2_pattern(expression, where);
}

}  // namespace qkscope
