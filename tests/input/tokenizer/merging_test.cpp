// Both merge algorithms against a reference that rescans all pairs after every merge.
#include <random>

#include <gtest/gtest.h>

#include "input/tokenizer/tokenizer_file.h"

namespace qkscope {
namespace {

std::vector<BpeSymbol> merge_plainly(const MergeTable& merges, std::vector<BpeSymbol> symbols) {
  while (true) {
    std::uint32_t best = MergeTable::kNone;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const std::uint32_t rank = merges.rank(symbols[i].id, symbols[i + 1].id);
      if (rank < best) {
        best = rank;
        at = i;
      }
    }
    if (best == MergeTable::kNone) return symbols;
    symbols[at] = {merges.merged_id(best), symbols[at].size + symbols[at + 1].size};
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Merging, MatchesTheReferenceImplementation) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    MergeTable merges;
    merges.reserve(60);
    std::int32_t next = 4;
    for (int i = 0; i < 60; ++i, ++next) {
      const auto pick = [&] {
        return static_cast<std::int32_t>(random() % static_cast<unsigned>(next));
      };
      merges.add(pick(), pick(), next);
    }
    std::vector<BpeSymbol> symbols(1 + random() % 200);
    for (BpeSymbol& symbol : symbols) symbol = {static_cast<std::int32_t>(random() % 4), 1};
    const auto expected = merge_plainly(merges, symbols);
    MergeWorkspace scratch;
    merge_symbols(merges, symbols, scratch);
    ASSERT_EQ(symbols.size(), expected.size());
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      EXPECT_EQ(symbols[i].id, expected[i].id);
      EXPECT_EQ(symbols[i].size, expected[i].size);
    }
  }
}

TEST(Merging, ADuplicatePairKeepsItsLastRank) {
  MergeTable merges;
  merges.reserve(3);
  merges.add(1, 2, 10);
  merges.add(2, 3, 11);
  merges.add(1, 2, 12);
  EXPECT_EQ(merges.rank(1, 2), 2u);
  EXPECT_EQ(merges.merged_id(2), 12);
  EXPECT_EQ(merges.rank(3, 1), MergeTable::kNone);
}

}  // namespace
}  // namespace qkscope
