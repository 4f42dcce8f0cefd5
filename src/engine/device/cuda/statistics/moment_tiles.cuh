// Tiles of 16-bit rows that moments are summed from, and what a block keeps of its sums.
#pragma once

#include <cstdint>

#include "engine/device/cuda/statistics/statistics_moments.h"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {

// The product X^T X is cut into blocks of 16 x 16, of which those on and above the diagonal are
// computed: rows P and kBlocks - 1 - P of blocks together have kBlocks + 1 of them. Two warps share
// such a pair of rows, one takes the left and one the right half of each block. By channel a warp
// takes 16 of them.
template <int kHeadWidth>
struct MomentTile {
  static constexpr int kWidth = kHeadWidth;  // dim, padded
  static constexpr int kBlocks = kWidth / 16;
  static constexpr int kWarps = kBlocks;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kRows = 32;
  static constexpr int kStages = 3;
  static constexpr int kLanePairs = kWidth / 64;  // rotary pairs of a lane
  static constexpr int kBytes = kRows * kPitch<kWidth>;
};

template <typename Tile>
struct MomentMemory {
  double products[4 * (Tile::kBlocks + 1)][Tile::kThreads];  // of each thread
  double sums[6][Tile::kWidth];                              // as MomentSum
  double pairs[Tile::kWarps][Tile::kWidth / 2];
  double norms[Tile::kWarps];
  float norm_max[Tile::kWarps];
  alignas(16) char tiles[Tile::kStages][Tile::kBytes];
};

// A chunk of so few rows, as the first tokens of a document are, is summed in float64: there the
// spread can be much smaller than what is taken off before it is looked at.
constexpr int kFewRows = 8;

template <typename Tile>
using Products = float[Tile::kBlocks + 1][4];

// The tiles of a segment, one after another.
template <typename Tile>
struct TileWalk {
  const MomentChunk* chunks;
  std::int32_t index, end;
  MomentChunk chunk = {};
  std::int32_t offset = 0;  // of the tile in its chunk

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
