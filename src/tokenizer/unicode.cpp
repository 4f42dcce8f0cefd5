#include "tokenizer/unicode.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace qkscope::unicode {
namespace {

constexpr char32_t kCodePoints = 0x110000;

struct Run {
  char32_t first;
  std::uint16_t value;
};
constexpr Run kProperties[] = {
#include "tokenizer/unicode/properties.inc"
};
constexpr Run kCombining[] = {
#include "tokenizer/unicode/combining.inc"
};

constexpr std::size_t kLongest = 18;  // characters of the longest compatibility decomposition
struct Mapping {
  char32_t code;
  char32_t to[kLongest];  // ends with 0 where shorter
};
constexpr Mapping kCanonical[] = {
#include "tokenizer/unicode/canonical.inc"
};
constexpr Mapping kCompatible[] = {
#include "tokenizer/unicode/compatible.inc"
};
constexpr Mapping kLowercase[] = {
#include "tokenizer/unicode/lowercase.inc"
};

struct Composition {
  char32_t first, second, composed;
};
constexpr Composition kCompositions[] = {
#include "tokenizer/unicode/compositions.inc"
};

template <std::size_t N>
std::u32string_view look_up(const Mapping (&table)[N], char32_t code) {
  const auto* found = std::lower_bound(std::begin(table), std::end(table), code,
                                       [](const Mapping& m, char32_t c) { return m.code < c; });
  if (found == std::end(table) || found->code != code) return {};
  const auto* end = std::find(found->to, found->to + kLongest, U'\0');
  return {found->to, static_cast<std::size_t>(end - found->to)};
}

template <typename Value, std::size_t N>
std::vector<Value> expand(const Run (&runs)[N]) {
  std::vector<Value> table(kCodePoints);
  for (std::size_t i = 0; i < N; ++i) {
    const auto end = i + 1 < N ? runs[i + 1].first : kCodePoints;
    std::fill(table.begin() + runs[i].first, table.begin() + end,
              static_cast<Value>(runs[i].value));
  }
  return table;
}

// Hangul syllables are computed: leading, vowel and trailing parts in a grid.
constexpr char32_t kHangul = 0xAC00, kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kLeadings = 19, kVowels = 21, kTrailings = 28;

char32_t compose_hangul(char32_t first, char32_t second) {
  if (first - kLeading < kLeadings && second - kVowel < kVowels) {
    return kHangul + ((first - kLeading) * kVowels + (second - kVowel)) * kTrailings;
  }
  const char32_t syllable = first - kHangul;
  if (syllable < kLeadings * kVowels * kTrailings && syllable % kTrailings == 0 &&
      second > kTrailing && second < kTrailing + kTrailings) {
    return first + (second - kTrailing);
  }
  return 0;
}

}  // namespace

const std::uint16_t* properties() {
  static const std::vector<std::uint16_t> table = expand<std::uint16_t>(kProperties);
  return table.data();
}

std::uint8_t combining_rank(char32_t code) {
  static const std::vector<std::uint8_t> table = expand<std::uint8_t>(kCombining);
  return table[code];
}

std::u32string_view canonical_decomposition(char32_t code) {
  return look_up(kCanonical, code);
}

std::u32string_view compatible_decomposition(char32_t code) {
  const auto compatible = look_up(kCompatible, code);
  return compatible.empty() ? look_up(kCanonical, code) : compatible;
}

char32_t compose(char32_t first, char32_t second) {
  static const auto table = [] {
    std::unordered_map<std::uint64_t, char32_t> pairs;
    for (const auto& c : kCompositions) {
      pairs.emplace(std::uint64_t{c.first} << 32 | c.second, c.composed);
    }
    return pairs;
  }();
  if (const char32_t hangul = compose_hangul(first, second)) return hangul;
  const auto found = table.find(std::uint64_t{first} << 32 | second);
  return found == table.end() ? 0 : found->second;
}

bool composes_backwards(char32_t code) {
  static const auto seconds = [] {
    std::unordered_set<char32_t> codes;
    for (const auto& c : kCompositions) codes.insert(c.second);
    return codes;
  }();
  return (code - kVowel < kVowels) || (code > kTrailing && code < kTrailing + kTrailings) ||
         seconds.contains(code);
}

const std::uint8_t* unsettled_forms() {
  static const std::vector<std::uint8_t> table = [] {
    constexpr std::uint8_t kAll = kNfc | kNfd | kNfkc | kNfkd;
    std::vector<std::uint8_t> forms(kCodePoints);
    for (const auto& mapping : kCanonical) forms[mapping.code] = kAll;
    for (const auto& c : kCompositions) forms[c.composed] = kNfd | kNfkd;  // composes again
    for (const auto& mapping : kCompatible) forms[mapping.code] |= kNfkc | kNfkd;
    std::fill_n(forms.begin() + kHangul, kLeadings * kVowels * kTrailings, kNfd | kNfkd);
    for (const auto& c : kCompositions) forms[c.second] = kAll;
    std::fill_n(forms.begin() + kVowel, kVowels, kAll);
    std::fill_n(forms.begin() + kTrailing, kTrailings, kAll);
    for (char32_t code = 0; code < kCodePoints; ++code) {
      if (combining_rank(code) != 0) forms[code] = kAll;
    }
    return forms;
  }();
  return table.data();
}

std::u32string_view lowercase(char32_t code) {
  return look_up(kLowercase, code);
}

}  // namespace qkscope::unicode
