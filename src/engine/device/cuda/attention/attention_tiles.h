// Tile schedule of a persistent attention kernel. A tile is a range of query rows of one head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkscope/forward.h"

namespace qkscope::cuda {

struct AttentionTile {
  std::int32_t begin;   // first row of the sequence
  std::int32_t length;  // its rows
  std::int32_t tile;    // tile index within the sequence
  std::int32_t head;    // query head
};

struct TileShape {
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  std::int64_t rows = 0;  // query rows of a tile
};

// Lists every tile once. Key heads whose keys and values fit into L2 together are scheduled
// together, query heads that share a key head are adjacent, and long tiles precede short ones, so
// that all multiprocessors finish at about the same time.
std::vector<AttentionTile> attention_tiles(std::span<const Sequence> sequences,
                                           const TileShape& shape);

}  // namespace qkscope::cuda
