#include "input/tokenizer/unicode.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/core/lazy_init.h"
#include "input/tokenizer/tokenizer_components.h"

namespace qkscope::unicode {
namespace {

constexpr char32_t kCodePoints = 0x110000;

struct CodePointRun {
  char32_t first;
  std::uint16_t value;
};
constexpr CodePointRun kProperties[] = {
#include "input/tokenizer/unicode/properties.inc"
};
constexpr CodePointRun kCombining[] = {
#include "input/tokenizer/unicode/combining.inc"
};

constexpr std::size_t kLongest = 18;  // characters in the longest compatibility decomposition
struct CodePointMapping {
  char32_t code;
  char32_t to[kLongest];  // zero-terminated if shorter
};
constexpr CodePointMapping kCanonical[] = {
#include "input/tokenizer/unicode/canonical.inc"
};
constexpr CodePointMapping kCompatible[] = {
#include "input/tokenizer/unicode/compatible.inc"
};
constexpr CodePointMapping kLowercase[] = {
#include "input/tokenizer/unicode/lowercase.inc"
};

struct CharacterComposition {
  char32_t first, second, composed;
};
constexpr CharacterComposition kCompositions[] = {
#include "input/tokenizer/unicode/compositions.inc"
};

template <std::size_t N>
std::u32string_view find_mapping_of_code_point(const CodePointMapping (&table)[N], char32_t code) {
  const auto* found =
      std::lower_bound(std::begin(table), std::end(table), code,
                       [](const CodePointMapping& m, char32_t c) { return m.code < c; });
  if (found == std::end(table) || found->code != code) return {};
  const auto* end = std::find(found->to, found->to + kLongest, U'\0');
  return {found->to, static_cast<std::size_t>(end - found->to)};
}

template <typename Value, std::size_t N>
std::vector<Value> expand_code_point_runs(const CodePointRun (&runs)[N]) {
  std::vector<Value> table(kCodePoints);
  for (std::size_t i = 0; i < N; ++i) {
    const auto end = i + 1 < N ? runs[i + 1].first : kCodePoints;
    std::fill(table.begin() + runs[i].first, table.begin() + end,
              static_cast<Value>(runs[i].value));
  }
  return table;
}

// Hangul syllables are composed arithmetically from leading consonant, vowel and trailing consonant
// (Unicode Standard, section 3.12).
constexpr char32_t kHangul = 0xAC00, kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kLeadings = 19, kVowels = 21, kTrailings = 28;
constexpr char32_t kSyllables = kLeadings * kVowels * kTrailings;

char32_t compose_hangul(char32_t first, char32_t second) {
  if (first - kLeading < kLeadings && second - kVowel < kVowels)
    return kHangul + ((first - kLeading) * kVowels + (second - kVowel)) * kTrailings;
  const char32_t syllable = first - kHangul;
  if (syllable < kSyllables && syllable % kTrailings == 0 && second > kTrailing &&
      second < kTrailing + kTrailings)
    return first + (second - kTrailing);
  return 0;
}

// Returns the rank of the canonical combining class, or 0 for a starter.
std::uint8_t combining_rank(char32_t code) {
  const auto& table =
      lazy_init_lock_free([] { return expand_code_point_runs<std::uint8_t>(kCombining); });
  return table[code];
}

// Returns the full decomposition of a non-Hangul character, or an empty view if there is none.
std::u32string_view find_decomposition(char32_t code, bool compatible) {
  const auto found =
      compatible ? find_mapping_of_code_point(kCompatible, code) : std::u32string_view();
  return found.empty() ? find_mapping_of_code_point(kCanonical, code) : found;
}

// Returns the composition of two characters, including Hangul, or 0 if there is none.
char32_t compose_characters(char32_t first, char32_t second) {
  const auto& table = lazy_init_lock_free([] {
    std::unordered_map<std::uint64_t, char32_t> pairs;
    for (const auto& c : kCompositions)
      pairs.emplace(std::uint64_t{c.first} << 32 | c.second, c.composed);
    return pairs;
  });
  if (const char32_t hangul = compose_hangul(first, second)) return hangul;
  const auto found = table.find(std::uint64_t{first} << 32 | second);
  return found == table.end() ? 0 : found->second;
}

bool composes_with_previous(char32_t code) {
  const auto& seconds = lazy_init_lock_free([] {
    std::unordered_set<char32_t> codes;
    for (const auto& c : kCompositions) codes.insert(c.second);
    return codes;
  });
  return (code - kVowel < kVowels) || (code > kTrailing && code < kTrailing + kTrailings) ||
         seconds.contains(code);
}

// Returns for every code point the normalization forms in which it is not inert, as bits. An inert
// character never changes, is not a combining mark and never composes with a previous character, so
// a text of inert characters is already normalized.
const std::uint8_t* normalization_form_masks() {
  const auto& table = lazy_init_lock_free([] {
    constexpr std::uint8_t kAll = kNfc | kNfd | kNfkc | kNfkd;
    std::vector<std::uint8_t> forms(kCodePoints);
    for (const auto& mapping : kCanonical) forms[mapping.code] = kAll;
    for (const auto& c : kCompositions)
      forms[c.composed] = kNfd | kNfkd;  // decomposes and composes again
    for (const auto& mapping : kCompatible) forms[mapping.code] |= kNfkc | kNfkd;
    std::fill_n(forms.begin() + kHangul, kSyllables, kNfd | kNfkd);
    for (const auto& c : kCompositions) forms[c.second] = kAll;
    std::fill_n(forms.begin() + kVowel, kVowels, kAll);
    std::fill_n(forms.begin() + kTrailing, kTrailings, kAll);
    for (char32_t code = 0; code < kCodePoints; ++code)
      if (combining_rank(code) != 0) forms[code] = kAll;
    return forms;
  });
  return table.data();
}

// A decomposed character. stands_for: number of source characters it represents; 0 if a
// decomposition inserted it, more than 1 after a composition.
struct DecomposedCharacter {
  char32_t code;
  int stands_for;
  std::uint8_t rank;  // rank of the combining class; 0: starter
};

// Returns the size in bytes of the longest prefix that normalization leaves unchanged: inert
// characters, except the last one if a non-inert character follows.
std::size_t normalized_prefix_size(std::string_view text, NormalizationForm form) {
  const std::uint8_t* const non_inert = normalization_form_masks();
  std::size_t at = 0, last = 0;
  while (at < text.size()) {
    const auto [code, size] = utf8::decode_character(text.data() + at);
    if (non_inert[code] & form) return last;
    last = at;
    at += size;
  }
  return at;
}

class UnicodeNormalizer {
 public:
  UnicodeNormalizer(SourceMappedText& text, NormalizationForm form) : rewrite_(text), form_(form) {}

  void normalize_text() {
    const std::string_view old = rewrite_.original_text();
    while (rewrite_.position() + pending_bytes_ < old.size()) {
      const std::size_t at = rewrite_.position() + pending_bytes_;
      if (parts_.empty()) {
        if (const std::size_t settled = normalized_prefix_size(old.substr(at), form_)) {
          rewrite_.copy_unchanged(settled);
          continue;
        }
      }
      const auto [code, size] = utf8::decode_character(old.data() + at);
      if (!parts_.empty() && starts_normalization_group(code)) {
        write_normalized_group();
        continue;
      }
      decompose(code);
      sizes_.push_back(size);
      pending_bytes_ += size;
    }
    write_normalized_group();
    rewrite_.finish();
  }

 private:
  bool is_composing_form() const { return form_ == kNfc || form_ == kNfkc; }
  bool is_compatibility_form() const { return form_ == kNfkc || form_ == kNfkd; }

  // Returns true if the character cannot be reordered or composed with any earlier character.
  bool starts_normalization_group(char32_t code) const {
    if (code < 0x80) return true;
    const auto parts = find_decomposition(code, is_compatibility_form());
    const char32_t first = parts.empty() ? code : parts.front();
    return combining_rank(first) == 0 && !composes_with_previous(first);
  }

  void add_decomposed(char32_t code, bool first) {
    parts_.push_back({code, first ? 1 : 0, combining_rank(code)});
  }

  void decompose(char32_t code) {
    if (code - kHangul < kSyllables) {
      const char32_t index = code - kHangul;
      add_decomposed(kLeading + index / (kVowels * kTrailings), true);
      add_decomposed(kVowel + index / kTrailings % kVowels, false);
      if (index % kTrailings != 0) add_decomposed(kTrailing + index % kTrailings, false);
      return;
    }
    const auto to = find_decomposition(code, is_compatibility_form());
    if (to.empty()) return add_decomposed(code, true);
    for (std::size_t i = 0; i < to.size(); ++i) add_decomposed(to[i], i == 0);
  }

  // Canonical ordering: sorts runs of combining marks by combining class.
  void sort_combining_marks() {
    for (auto begin = parts_.begin(); begin != parts_.end();) {
      if (begin->rank == 0) {
        ++begin;
        continue;
      }
      auto end = std::find_if(begin, parts_.end(),
                              [](const DecomposedCharacter& p) { return p.rank == 0; });
      std::stable_sort(begin, end, [](const DecomposedCharacter& a, const DecomposedCharacter& b) {
        return a.rank < b.rank;
      });
      begin = end;
    }
  }

  void compose_group() {
    std::size_t kept = 0, starter = parts_.size();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const DecomposedCharacter part = parts_[i];
      if (starter < kept) {
        // A mark of the same or a higher combining class blocks composition with the starter.
        const bool adjacent = starter + 1 == kept;
        const bool blocked = !adjacent && parts_[kept - 1].rank >= part.rank;
        const char32_t joined = blocked ? 0 : compose_characters(parts_[starter].code, part.code);
        if (joined != 0) {
          parts_[starter].code = joined;
          parts_[starter].stands_for += part.stands_for;
          continue;
        }
      }
      if (part.rank == 0) starter = kept;
      parts_[kept++] = part;
    }
    parts_.resize(kept);
  }

  void write_normalized_group() {
    sort_combining_marks();
    if (is_composing_form()) compose_group();
    std::size_t next = 0;  // index into sizes_
    for (const DecomposedCharacter& part : parts_) {
      std::size_t bytes = 0;
      for (int i = 0; i < part.stands_for; ++i) bytes += sizes_[next++];
      rewrite_.replace_by_character(part.code, bytes);
    }
    parts_.clear();
    sizes_.clear();
    pending_bytes_ = 0;
  }

  SourceMappedText::TextRewriter rewrite_;
  NormalizationForm form_;
  std::vector<DecomposedCharacter> parts_;  // decomposed characters of the current group
  std::vector<std::uint32_t> sizes_;        // bytes of each source character of the group
  std::size_t pending_bytes_ = 0;
};

}  // namespace

const std::uint16_t* character_property_table() {
  const auto& table =
      lazy_init_lock_free([] { return expand_code_point_runs<std::uint16_t>(kProperties); });
  return table.data();
}

std::u32string_view lowercase(char32_t code) {
  return find_mapping_of_code_point(kLowercase, code);
}

void normalize(SourceMappedText& text, NormalizationForm form) {
  if (normalized_prefix_size(text.text(), form) == text.text().size()) return;
  UnicodeNormalizer(text, form).normalize_text();
}

}  // namespace qkscope::unicode
