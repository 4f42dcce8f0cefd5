// Shared-memory tiles of 16-bit rows, and the partial sums of a block.
#pragma once

#include <cstdint>

#include "engine/device/cuda/statistics/statistics_moments.h"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {

// The Gram matrix X^T X is computed in blocks of 16 x 16 on and above the diagonal: block rows P
// and kBlocks - 1 - P together have kBlocks + 1 blocks. Two warps share such a pair of block rows,
// one taking the left and one the right half of each block. For sums per channel a warp takes 16
// channels.
template <int kHeadWidth>
struct MomentTile {
  static constexpr int kWidth = kHeadWidth;  // dim, padded
  static constexpr int kBlocks = kWidth / 16;
  static constexpr int kWarps = kBlocks;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kRows = 32;
  static constexpr int kStages = 3;
  static constexpr int kLanePairs = kWidth / 64;  // rotary pairs per lane
  static constexpr int kBytes = kRows * kPitch<kWidth>;
};

template <typename Tile>
struct MomentMemory {
  double products[4 * (Tile::kBlocks + 1)][Tile::kThreads];  // per thread
  double sums[6][Tile::kWidth];                              // indexed by MomentSum
  double pairs[Tile::kWarps][Tile::kWidth / 2];
  double norms[Tile::kWarps];
  float norm_max[Tile::kWarps];
  alignas(16) char tiles[Tile::kStages][Tile::kBytes];
};

// Chunks of so few rows (the first tokens of a document) are summed in float64, because their
// spread can be far smaller than the shift that is subtracted.
constexpr int kFewRows = 8;

template <typename Tile>
using Products = float[Tile::kBlocks + 1][4];

// Iterates over the tiles of a segment.
template <typename Tile>
struct TileWalk {
  const MomentChunk* chunks;
  std::int32_t index, end;
  MomentChunk chunk = {};
  std::int32_t offset = 0;  // first row of the tile within its chunk

  __device__ TileWalk(const MomentChunk* all, MomentSegment segment)
      : chunks(all), index(segment.begin), end(segment.end) {
    if (exists()) chunk = chunks[index];
  }
  __device__ bool exists() const { return index < end; }
  __device__ int rows() const { return min(chunk.rows - offset, Tile::kRows); }
  __device__ bool ends_chunk() const { return offset + Tile::kRows >= chunk.rows; }
  __device__ void next() {
    if (!ends_chunk()) {
      offset += Tile::kRows;
      return;
    }
    offset = 0;
    if (++index < end) chunk = chunks[index];
  }
};

}  // namespace qkscope::cuda
