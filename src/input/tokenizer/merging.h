// The merge loop of BPE: the adjacent pair with the lowest rank is merged (ties: leftmost first)
// until no pair can be merged.
#pragma once

#include <cstdint>
#include <vector>

#include "input/tokenizer/vocabulary.h"

namespace qkscope {

// Hash table of all merges: (left id, right id) -> rank and merged id.
class MergeTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  void reserve(std::size_t count) {
    slots_.assign(table_size(count), Slot{});
    into_.reserve(count);
  }
  // Merges must be added in order of rank. A duplicate pair keeps its last rank.
  void add(std::int32_t left, std::int32_t right, std::int32_t into) {
    Slot& slot = slots_[find(left, right)];
    slot = {left, right, static_cast<std::uint32_t>(into_.size())};
    into_.push_back(into);
  }

  // Returns the rank of a pair (lower merges first), or kNone if the pair does not merge.
  std::uint32_t rank(std::int32_t left, std::int32_t right) const {
    return slots_[find(left, right)].rank;
  }
  std::int32_t into(std::uint32_t rank) const { return into_[rank]; }
  std::size_t size() const { return into_.size(); }

 private:
  struct Slot {
    std::int32_t left = -1, right = -1;
    std::uint32_t rank = kNone;
  };
  std::size_t find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key =
        std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = mix_bits(key, 0x9E3779B97F4A7C15u) & mask;
    while (slots_[at].rank != kNone && (slots_[at].left != left || slots_[at].right != right))
      at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(1);  // always contains a free slot
  std::vector<std::int32_t> into_;                  // merged id by rank
};

struct Symbol {
  std::int32_t id;
  std::uint32_t size;  // bytes in the vocabulary's spelling
};

// Memory reused between words.
struct MergeScratch {
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint32_t> next, previous;
  std::vector<std::uint64_t> heap;
};

// Merges in place, in near-linear time.
void merge_symbols(const MergeTable& merges, std::vector<Symbol>& symbols, MergeScratch& scratch);

}  // namespace qkscope
