#include "tokenizer/unicode_forms.h"

#include <algorithm>
#include <vector>

#include "core/utf8.h"
#include "tokenizer/unicode.h"

namespace qkscope {
namespace {

// A character on its way through, and how many old characters it stands for: 0 for one that a
// decomposition added, more than one where a composition swallowed some.
struct Part {
  char32_t code;
  int stands_for;
  std::uint8_t rank;  // among combining marks, 0: starts a group
};

constexpr char32_t kHangul = 0xAC00, kHangulCount = 11172;

std::uint8_t form_bit(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::nfc:
      return unicode::kNfc;
    case UnicodeForm::nfd:
      return unicode::kNfd;
    case UnicodeForm::nfkc:
      return unicode::kNfkc;
    default:
      return unicode::kNfkd;
  }
}

// Bytes at the front of the text that stay as they are: settled characters, without the last of
// them where something follows that may compose with it.
std::size_t settled_run(std::string_view text, std::uint8_t form) {
  const std::uint8_t* const unsettled = unicode::unsettled_forms();
  std::size_t at = 0, last = 0;
  while (at < text.size()) {
    const auto [code, size] = utf8::decode(text.data() + at);
    if (unsettled[code] & form) return last;
    last = at;
    at += size;
  }
  return at;
}

class Normalization {
 public:
  Normalization(AlignedText& text, UnicodeForm form)
      : rewrite_(text), form_(form), bit_(form_bit(form)) {}

  void run() {
    const std::string_view old = rewrite_.old();
    while (rewrite_.position() + pending_bytes_ < old.size()) {
      const std::size_t at = rewrite_.position() + pending_bytes_;
      if (parts_.empty()) {
        if (const std::size_t settled = settled_run(old.substr(at), bit_)) {
          rewrite_.keep(settled);
          continue;
        }
      }
      const auto [code, size] = utf8::decode(old.data() + at);
      if (!parts_.empty() && starts_group(code)) {
        flush();
        continue;
      }
      decompose(code);
      sizes_.push_back(size);
      pending_bytes_ += size;
    }
    flush();
    rewrite_.finish();
  }

 private:
  bool composing() const { return form_ == UnicodeForm::nfc || form_ == UnicodeForm::nfkc; }
  bool compatible() const { return form_ == UnicodeForm::nfkc || form_ == UnicodeForm::nfkd; }

  // Nothing before such a character can be reordered or composed with it.
  bool starts_group(char32_t code) const {
    if (code < 0x80) return true;
    std::u32string_view parts = compatible() ? unicode::compatible_decomposition(code)
                                             : unicode::canonical_decomposition(code);
    const char32_t first = parts.empty() ? code : parts.front();
    return unicode::combining_rank(first) == 0 && !unicode::composes_backwards(first);
  }

  void add(char32_t code, bool first) {
    parts_.push_back({code, first ? 1 : 0, unicode::combining_rank(code)});
  }

  void decompose(char32_t code) {
    if (code - kHangul < kHangulCount) {
      const char32_t index = code - kHangul;
      add(0x1100 + index / 588, true);
      add(0x1161 + index % 588 / 28, false);
      if (index % 28 != 0) add(0x11A7 + index % 28, false);
      return;
    }
    const auto to = compatible() ? unicode::compatible_decomposition(code)
                                 : unicode::canonical_decomposition(code);
    if (to.empty()) return add(code, true);
    for (std::size_t i = 0; i < to.size(); ++i) add(to[i], i == 0);
  }

  // Marks between two starters go into the order of their classes.
  void reorder() {
    for (auto begin = parts_.begin(); begin != parts_.end();) {
      if (begin->rank == 0) {
        ++begin;
        continue;
      }
      auto end = std::find_if(begin, parts_.end(), [](const Part& p) { return p.rank == 0; });
      std::stable_sort(begin, end, [](const Part& a, const Part& b) { return a.rank < b.rank; });
      begin = end;
    }
  }

  void compose() {
    std::size_t kept = 0, starter = parts_.size();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part part = parts_[i];
      if (starter < kept) {
        // Blocked when a mark of the same or a higher class, or a starter, stands between.
        const bool adjacent = starter + 1 == kept;
        const bool blocked =
            !adjacent && (parts_[kept - 1].rank == 0 || parts_[kept - 1].rank >= part.rank);
        const char32_t joined = blocked ? 0 : unicode::compose(parts_[starter].code, part.code);
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

  void flush() {
    reorder();
    if (composing()) compose();
    std::size_t next = 0;  // old character
    for (const Part& part : parts_) {
      std::size_t bytes = 0;
      for (int i = 0; i < part.stands_for && next < sizes_.size(); ++i) bytes += sizes_[next++];
      rewrite_.put(part.code, bytes);
    }
    parts_.clear();
    sizes_.clear();
    pending_bytes_ = 0;
  }

  AlignedText::Rewrite rewrite_;
  UnicodeForm form_;
  std::uint8_t bit_;
  std::vector<Part> parts_;           // of the group being gathered
  std::vector<std::uint32_t> sizes_;  // bytes of each old character of the group
  std::size_t pending_bytes_ = 0;
};

}  // namespace

void normalize(AlignedText& text, UnicodeForm form) {
  if (settled_run(text.text(), form_bit(form)) == text.text().size()) return;
  Normalization(text, form).run();
}

}  // namespace qkscope
