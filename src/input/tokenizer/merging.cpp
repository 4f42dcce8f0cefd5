#include "input/tokenizer/merging.h"

#include <algorithm>
#include <functional>

namespace qkscope {
namespace {

constexpr std::size_t kShort = 40;  // symbols; up to here a linear search beats a heap
constexpr std::uint32_t kNone = MergeTable::kNone;

void merge_short(const MergeTable& merges, std::vector<Symbol>& symbols,
                 std::vector<std::uint32_t>& ranks) {
  std::size_t count = symbols.size();
  ranks.resize(count);
  for (std::size_t i = 0; i + 1 < count; ++i)
    ranks[i] = merges.rank(symbols[i].id, symbols[i + 1].id);
  while (count > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.begin() + count - 1);
    if (*best == kNone) break;
    const auto at = static_cast<std::size_t>(best - ranks.begin());
    symbols[at] = {merges.into(*best), symbols[at].size + symbols[at + 1].size};
    std::copy(symbols.begin() + at + 2, symbols.begin() + count, symbols.begin() + at + 1);
    std::copy(ranks.begin() + at + 1, ranks.begin() + count, ranks.begin() + at);
    --count;
    if (at > 0) ranks[at - 1] = merges.rank(symbols[at - 1].id, symbols[at].id);
    if (at + 1 < count) ranks[at] = merges.rank(symbols[at].id, symbols[at + 1].id);
  }
  symbols.resize(count);
}

// Heap of (rank, position) with lazy deletion. ranks[i] is always the current rank of the pair that
// starts at i; heap entries with another rank are stale and skipped.
class LongMerge {
 public:
  LongMerge(const MergeTable& merges, std::vector<Symbol>& symbols, MergeScratch& scratch)
      : merges_(merges),
        symbols_(symbols),
        scratch_(scratch),
        count_(static_cast<std::uint32_t>(symbols.size())) {}

  void run() {
    link();
    while (!scratch_.heap.empty()) {
      std::pop_heap(scratch_.heap.begin(), scratch_.heap.end(), std::greater<>());
      const std::uint64_t top = scratch_.heap.back();
      scratch_.heap.pop_back();
      const auto at = static_cast<std::uint32_t>(top);
      if (scratch_.ranks[at] == static_cast<std::uint32_t>(top >> 32)) merge(at);
    }
    std::uint32_t kept = 0;
    for (std::uint32_t at = 0; at < count_; at = scratch_.next[at]) symbols_[kept++] = symbols_[at];
    symbols_.resize(kept);
  }

 private:
  void link() {
    scratch_.ranks.assign(count_, kNone);
    scratch_.next.resize(count_);
    scratch_.previous.resize(count_);
    scratch_.heap.clear();
    for (std::uint32_t i = 0; i < count_; ++i) {
      scratch_.next[i] = i + 1;
      scratch_.previous[i] = i - 1;
      if (i + 1 == count_) break;
      scratch_.ranks[i] = merges_.rank(symbols_[i].id, symbols_[i + 1].id);
      if (scratch_.ranks[i] != kNone) scratch_.heap.push_back(entry(i));
    }
    std::make_heap(scratch_.heap.begin(), scratch_.heap.end(), std::greater<>());
  }

  std::uint64_t entry(std::uint32_t at) const {
    return std::uint64_t{scratch_.ranks[at]} << 32 | at;
  }

  void merge(std::uint32_t at) {
    const std::uint32_t right = scratch_.next[at];
    symbols_[at] = {merges_.into(scratch_.ranks[at]), symbols_[at].size + symbols_[right].size};
    scratch_.ranks[right] = kNone;
    scratch_.next[at] = scratch_.next[right];
    if (scratch_.next[at] < count_) scratch_.previous[scratch_.next[at]] = at;
    update(at);
    if (at > 0) update(scratch_.previous[at]);
  }

  void update(std::uint32_t at) {
    const std::uint32_t right = scratch_.next[at];
    scratch_.ranks[at] = right < count_ ? merges_.rank(symbols_[at].id, symbols_[right].id) : kNone;
    if (scratch_.ranks[at] == kNone) return;
    scratch_.heap.push_back(entry(at));
    std::push_heap(scratch_.heap.begin(), scratch_.heap.end(), std::greater<>());
  }

  const MergeTable& merges_;
  std::vector<Symbol>& symbols_;
  MergeScratch& scratch_;
  std::uint32_t count_;
};

}  // namespace

void merge_symbols(const MergeTable& merges, std::vector<Symbol>& symbols, MergeScratch& scratch) {
  if (symbols.size() <= kShort) {
    merge_short(merges, symbols, scratch.ranks);
  } else {
    LongMerge(merges, symbols, scratch).run();
  }
}

}  // namespace qkscope
