#include "input/tokenizer/vocabulary.h"

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
    symbols[at] = {merges.merged_id(*best), symbols[at].size + symbols[at + 1].size};
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
void merge_long(const MergeTable& merges, std::vector<Symbol>& symbols, MergeScratch& scratch) {
  auto& ranks = scratch.ranks;
  auto& next = scratch.next;
  auto& previous = scratch.previous;
  auto& heap = scratch.heap;
  const auto count = static_cast<std::uint32_t>(symbols.size());
  ranks.assign(count, kNone);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  const auto update = [&](std::uint32_t at) {
    const std::uint32_t right = next[at];
    ranks[at] = right < count ? merges.rank(symbols[at].id, symbols[right].id) : kNone;
    if (ranks[at] == kNone) return;
    heap.push_back(std::uint64_t{ranks[at]} << 32 | at);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
    update(i);
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(top);
    if (ranks[at] != static_cast<std::uint32_t>(top >> 32)) continue;
    const std::uint32_t right = next[at];
    symbols[at] = {merges.merged_id(ranks[at]), symbols[at].size + symbols[right].size};
    ranks[right] = kNone;
    next[at] = next[right];
    if (next[at] < count) previous[next[at]] = at;
    update(at);
    if (at > 0) update(previous[at]);
  }
  std::uint32_t kept = 0;
  for (std::uint32_t at = 0; at < count; at = next[at]) symbols[kept++] = symbols[at];
  symbols.resize(kept);
}

}  // namespace

std::size_t Vocabulary::find_slot(std::string_view token, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at] != 0) {
    const Entry& entry = entries_[slots_[at] - 1];
    if (entry.hash == hash && text(entry) == token) break;
    at = (at + 1) & mask;
  }
  return at;
}

void Vocabulary::grow() {
  slots_.assign(hash_table_size(2 * entries_.size() + 8), 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::size_t at = entries_[i].hash & mask;
    while (slots_[at] != 0) at = (at + 1) & mask;
    slots_[at] = static_cast<std::uint32_t>(i + 1);
  }
}

void Vocabulary::add(std::string_view token, std::int32_t id) {
  if (2 * entries_.size() >= slots_.size()) grow();
  const auto hash = static_cast<std::uint32_t>(hash_string(token));
  const std::size_t at = find_slot(token, hash);
  if (slots_[at] == 0) {
    entries_.push_back({static_cast<std::uint32_t>(text_.size()),
                        static_cast<std::uint32_t>(token.size()), id, hash});
    text_.append(token);
    slots_[at] = static_cast<std::uint32_t>(entries_.size());
  }
  const std::uint32_t entry = slots_[at] - 1;
  entries_[entry].id = id;
  if (id >= id_limit()) by_id_.resize(static_cast<std::size_t>(id) + 1, -1);
  by_id_[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(entry);
}

std::int32_t Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return -1;
  const std::uint32_t entry =
      slots_[find_slot(token, static_cast<std::uint32_t>(hash_string(token)))];
  return entry == 0 ? -1 : entries_[entry - 1].id;
}

std::optional<std::string_view> Vocabulary::token(std::int32_t id) const {
  if (id < 0 || id >= id_limit()) return std::nullopt;
  const std::int32_t entry = by_id_[static_cast<std::size_t>(id)];
  if (entry < 0) return std::nullopt;
  return text(entries_[static_cast<std::size_t>(entry)]);
}

void merge_symbols(const MergeTable& merges, std::vector<Symbol>& symbols, MergeScratch& scratch) {
  if (symbols.size() <= kShort) return merge_short(merges, symbols, scratch.ranks);
  merge_long(merges, symbols, scratch);
}

}  // namespace qkscope
