// The merging at the heart of BPE: again and again, of all neighbouring pairs that join, the one
// with the lowest rank (the leftmost of those) becomes one token.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/merge_table.h"

namespace qkscope {

struct Symbol {
  std::int32_t id;
  std::uint32_t size;  // bytes of the word as the vocabulary spells it
};

// Memory to reuse between words.
struct MergeScratch {
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint32_t> next, previous;
  std::vector<std::uint64_t> heap;
};

// Merges in place. Near-linear in the number of symbols.
void merge_symbols(const MergeTable& merges, std::vector<Symbol>& symbols, MergeScratch& scratch);

}  // namespace qkscope
