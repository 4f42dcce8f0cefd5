#include "input/tokenizer/pattern.h"

#include "base/core/utf8.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

// Collects matches in order and fills in the gaps between them.
class MatchCollector {
 public:
  explicit MatchCollector(std::vector<Match>& matches) : matches_(matches) {}

  void add(std::size_t begin, std::size_t end) {
    fill_gap(begin);
    push(end, true);
  }
  void fill_gap(std::size_t until) {
    if (end_ < until) push(until, false);
  }

 private:
  void push(std::size_t end, bool matched) {
    matches_.push_back(
        {{static_cast<std::uint32_t>(end_), static_cast<std::uint32_t>(end)}, matched});
    end_ = end;
  }

  std::vector<Match>& matches_;
  std::size_t end_ = 0;  // of the last match or gap
};

enum class CharacterKind { space, word, other };

CharacterKind kind_at(std::string_view text, std::size_t at) {
  const std::uint16_t flags = unicode::properties()[utf8::decode(text.data() + at).code];
  if (flags & unicode::kWord) return CharacterKind::word;
  return flags & unicode::kSpace ? CharacterKind::space : CharacterKind::other;
}

}  // namespace

Pattern make_string_pattern(std::string literal) {
  return {.find = [literal = std::move(literal)](std::string_view text, auto& out) {
    MatchCollector matches(out);
    for (std::size_t at = 0; (at = text.find(literal, at)) != std::string_view::npos;) {
      matches.add(at, at + literal.size());
      at += literal.size();
    }
    matches.fill_gap(text.size());
  }};
}

Pattern make_property_pattern(std::uint16_t flags) {
  const auto find = [flags](std::string_view text, std::vector<Match>& out) {
    MatchCollector matches(out);
    const std::uint16_t* properties = unicode::properties();
    for (std::size_t at = 0; at < text.size();) {
      const auto [code, size] = utf8::decode(text.data() + at);
      if (properties[code] & flags) matches.add(at, at + size);
      at += size;
    }
    matches.fill_gap(text.size());
  };
  return {.find = find, .breaks_before_space = (flags & unicode::kSpace) != 0};
}

Pattern make_words_pattern() {
  const auto find = [](std::string_view text, std::vector<Match>& out) {
    MatchCollector matches(out);
    for (std::size_t at = 0; at < text.size();) {
      const auto kind = kind_at(text, at);
      std::size_t end = at;
      while (end < text.size() && kind_at(text, end) == kind) end += utf8::length(text[end]);
      if (kind != CharacterKind::space) matches.add(at, end);
      at = end;
    }
    matches.fill_gap(text.size());
  };
  return {.find = find, .breaks_before_space = true};
}

Pattern make_regex_pattern(const std::string& expression, const std::string& where) {
  if (auto family = make_family_pattern(expression)) return *family;
  return make_pcre2_pattern(expression, where);
}

}  // namespace qkscope
