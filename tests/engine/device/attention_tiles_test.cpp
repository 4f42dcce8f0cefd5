#include "engine/device/cuda/attention/attention_tiles.h"

#include <map>
#include <tuple>

#include <gtest/gtest.h>

namespace qkscope::cuda {
namespace {

using Place = std::tuple<std::int32_t, std::int32_t, std::int32_t>;

Place place_of(const AttentionTile& tile) {
  return {tile.begin, tile.tile, tile.head};
}

constexpr TileShape kShape{.n_heads = 6, .n_kv_heads = 2, .d_head = 128, .rows = 128};

TEST(AttentionTiles, EveryTileOfEverySequenceAndHeadIsThereOnce) {
  const std::vector<Sequence> sequences = {{0, 1}, {1, 128}, {129, 129}, {258, 40000}};
  std::map<Place, int> count;
  for (const auto& tile : attention_tiles(sequences, kShape)) {
    ++count[place_of(tile)];
    EXPECT_LT(tile.tile * 128, tile.length);
  }
  std::size_t expected = 0;
  for (const auto& sequence : sequences)
    expected += static_cast<std::size_t>((sequence.length + 127) / 128 * 6);
  EXPECT_EQ(count.size(), expected);
  for (const auto& [place, times] : count) EXPECT_EQ(times, 1);
}

TEST(AttentionTiles, LongOnesComeFirstAndHeadsOfAKeyHeadLieSideBySide) {
  const std::vector<Sequence> sequences = {{0, 1000}, {1000, 300}};
  const auto tiles = attention_tiles(sequences, kShape);
  ASSERT_EQ(tiles.size(), (8u + 3u) * 6);
  for (std::size_t i = 3; i < tiles.size(); ++i) EXPECT_LE(tiles[i].tile, tiles[i - 3].tile);
  for (std::size_t i = 0; i < tiles.size(); i += 3)
    for (std::size_t k = 1; k < 3; ++k) {
      EXPECT_EQ(tiles[i + k].head, tiles[i].head + static_cast<std::int32_t>(k));
      EXPECT_EQ(tiles[i + k].tile, tiles[i].tile);
      EXPECT_EQ(tiles[i].head % 3, 0);
    }
}

// 40,000 tokens of keys and values of one head are 20 MB: more than is cached.
TEST(AttentionTiles, KeyHeadsThatDoNotFitIntoTheCacheComeOneAfterAnother) {
  const std::vector<Sequence> sequences = {{0, 40000}};
  const auto tiles = attention_tiles(sequences, kShape);
  const auto half = tiles.size() / 2;
  for (std::size_t i = 0; i < tiles.size(); ++i) EXPECT_EQ(tiles[i].head / 3, i < half ? 0 : 1);
  EXPECT_EQ(tiles[half].tile, tiles[0].tile);
}

}  // namespace
}  // namespace qkscope::cuda
