// The order in which a persistent attention kernel works off its tiles: a tile is some rows of
// queries of one head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkscope/forward.h"

namespace qkscope::cuda {

struct AttentionTile {
  std::int32_t begin;   // first row of the sequence
  std::int32_t length;  // its rows
  std::int32_t tile;    // which rows of the sequence: from tile times the rows of a tile on
  std::int32_t head;    // of the queries
};

struct TileShape {
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  std::int64_t rows = 0;  // of queries in a tile
};

// Every tile once. Key heads whose keys and values fit into the cache together are worked off
// together, the query heads that share a key head side by side, and long tiles before short ones,
// so that the multiprocessors end at the same time.
std::vector<AttentionTile> attention_tiles(std::span<const Sequence> sequences,
                                           const TileShape& shape);

}  // namespace qkscope::cuda
