#include "engine/device/cuda/attention/attention_tiles.h"

#include <algorithm>

namespace qkscope::cuda {
namespace {

// Bytes of 16-bit keys and values that are processed together. Sizes from 8 MB up were tried on an
// H200 (50 MB of L2); 8 MB was fastest at every length.
constexpr std::int64_t kCachedBytes = 8'000'000;

struct KeyHead {
  Sequence sequence;
  std::int64_t head;
};

struct Tile {
  std::int64_t tile;
  const KeyHead* keys;
};

}  // namespace

std::vector<AttentionTile> attention_tiles(std::span<const Sequence> sequences,
                                           const TileShape& shape) {
  std::vector<KeyHead> key_heads;
  for (const auto& sequence : sequences)
    for (std::int64_t head = 0; head < shape.n_kv_heads; ++head)
      key_heads.push_back({sequence, head});
  const auto bytes = [&](const KeyHead& keys) { return keys.sequence.length * shape.d_head * 4; };
  const auto group = shape.n_heads / shape.n_kv_heads;
  std::vector<AttentionTile> order;
  for (auto first = key_heads.begin(); first != key_heads.end();) {
    std::vector<Tile> together;
    auto last = first;
    for (std::int64_t cached = 0;
         last != key_heads.end() && (last == first || cached + bytes(*last) <= kCachedBytes);
         ++last) {
      cached += bytes(*last);
      for (std::int64_t tile = 0; tile * shape.rows < last->sequence.length; ++tile)
        together.push_back({tile, &*last});
    }
    std::stable_sort(together.begin(), together.end(),
                     [](const Tile& a, const Tile& b) { return a.tile > b.tile; });
    for (const auto& [tile, keys] : together)
      for (std::int64_t head = keys->head * group; head < (keys->head + 1) * group; ++head)
        order.push_back({static_cast<std::int32_t>(keys->sequence.begin),
                         static_cast<std::int32_t>(keys->sequence.length),
                         static_cast<std::int32_t>(tile), static_cast<std::int32_t>(head)});
    first = last;
  }
  return order;
}

}  // namespace qkscope::cuda
