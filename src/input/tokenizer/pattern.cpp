#include "input/tokenizer/pattern.h"

#include "base/core/utf8.h"
#include "input/tokenizer/family_pattern.h"
#include "input/tokenizer/pcre2_pattern.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

// Collects matches in order and fills in the gaps between them.
class Stretches {
 public:
  explicit Stretches(std::vector<Match>& out) : out_(out) {}

  void add(std::size_t begin, std::size_t end) {
    gap(begin);
    push(begin, end, true);
    at_ = end;
  }
  void gap(std::size_t until) {
    if (at_ < until) push(at_, until, false);
    at_ = until;
  }

 private:
  void push(std::size_t begin, std::size_t end, bool matched) {
    out_.push_back({{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)}, matched});
  }

  std::vector<Match>& out_;
  std::size_t at_ = 0;
};

class StringPattern : public Pattern {
 public:
  explicit StringPattern(std::string literal) : literal_(std::move(literal)) {}

  void find(std::string_view text, std::vector<Match>& out) const override {
    Stretches stretches(out);
    for (std::size_t at = 0; (at = text.find(literal_, at)) != std::string_view::npos;) {
      stretches.add(at, at + literal_.size());
      at += literal_.size();
    }
    stretches.gap(text.size());
  }

 private:
  std::string literal_;
};

class PropertyPattern : public Pattern {
 public:
  explicit PropertyPattern(std::uint16_t flags) : flags_(flags) {}

  void find(std::string_view text, std::vector<Match>& out) const override {
    Stretches stretches(out);
    const std::uint16_t* properties = unicode::properties();
    for (std::size_t at = 0; at < text.size();) {
      const auto [code, size] = utf8::decode(text.data() + at);
      if (properties[code] & flags_) stretches.add(at, at + size);
      at += size;
    }
    stretches.gap(text.size());
  }
  bool breaks_before_space() const override { return (flags_ & unicode::kSpace) != 0; }

 private:
  std::uint16_t flags_;
};

class WordsPattern : public Pattern {
 public:
  void find(std::string_view text, std::vector<Match>& out) const override {
    Stretches stretches(out);
    for (std::size_t at = 0; at < text.size();) {
      const int kind = kind_at(text, at);
      std::size_t end = at;
      while (end < text.size() && kind_at(text, end) == kind) end += utf8::length(text[end]);
      if (kind != kBetween) stretches.add(at, end);
      at = end;
    }
    stretches.gap(text.size());
  }
  bool breaks_before_space() const override { return true; }

 private:
  enum Kind { kBetween, kInWord, kOther };
  static Kind kind_at(std::string_view text, std::size_t at) {
    const std::uint16_t flags = unicode::properties()[utf8::decode(text.data() + at).code];
    return flags & unicode::kWord ? kInWord : flags & unicode::kSpace ? kBetween : kOther;
  }
};

}  // namespace

PatternPointer make_string_pattern(std::string literal) {
  return std::make_unique<StringPattern>(std::move(literal));
}

PatternPointer make_property_pattern(std::uint16_t flags) {
  return std::make_unique<PropertyPattern>(flags);
}

PatternPointer make_words_pattern() {
  return std::make_unique<WordsPattern>();
}

PatternPointer make_regex_pattern(const std::string& expression, const std::string& where) {
  if (auto family = make_family_pattern(expression)) return family;
  return make_pcre2_pattern(expression, where);
}

}  // namespace qkscope
