// Tiles of the moment kernel for 16-bit types, and its moments per channel: power sums, covariances
// with position, and ranges.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/statistics/statistics_moments.h"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {

// The Gram matrix X^T X is computed in blocks of 16 x 16 on and above the diagonal: block rows P
// and kBlocks - 1 - P together have kBlocks + 1 blocks. Two warps share such a pair of block rows:
// one computes the left half of each block, the other the right half. For sums per channel, each
// warp processes 16 channels.
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
struct MomentSharedMemory {
  double products[4 * (Tile::kBlocks + 1)][Tile::kThreads];  // per thread
  double sums[6][Tile::kWidth];                              // indexed by MomentSumRow
  double pairs[Tile::kWarps][Tile::kWidth / 2];
  double norms[Tile::kWarps];
  float norm_max[Tile::kWarps];
  alignas(16) char tiles[Tile::kStages][Tile::kBytes];
};

// Chunks with at most this many rows (the first tokens of a document) are summed in float64,
// because their spread can be far smaller than the shift that is subtracted.
constexpr int kFewRows = 8;

template <typename Tile>
using GramFragments = float[Tile::kBlocks + 1][4];

// Iterates over the tiles of a segment.
template <typename Tile>
struct TileIterator {
  const MomentChunk* chunks;
  std::int32_t index, end;
  MomentChunk chunk = {};
  std::int32_t offset = 0;  // first row of the tile within its chunk

  __device__ TileIterator(const MomentChunk* all, MomentSegment segment)
      : chunks(all), index(segment.begin), end(segment.end) {
    if (has_tile()) chunk = chunks[index];
  }
  __device__ bool has_tile() const { return index < end; }
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

// Sums of x - centre and of its powers for one channel, over the rows of one lane.
struct ChannelSums {
  float y = 0, y2 = 0, yt = 0, yu = 0, y3 = 0, y4 = 0;  // sums of the chunk
  double far3 = 0, far4 = 0;                            // powers of outliers, sums of the segment

  // Adds one value. Third and fourth powers of outliers are left to add_outliers, because one
  // outlier can outweigh all other values and float32 would lose them. Returns whether x is an
  // outlier.
  __device__ __forceinline__ bool add(float x, float centre, float limit, float t, float u) {
    const float from_centre = x - centre;
    const float square = from_centre * from_centre;
    y += from_centre;
    y2 += square;
    yt = fmaf(from_centre, t, yt);
    yu = fmaf(from_centre, u, yu);
    const bool is_outlier = !(square <= limit);
    const float near = is_outlier ? 0.0f : square;
    y3 = fmaf(near, from_centre, y3);
    y4 = fmaf(near, near, y4);
    return is_outlier;
  }
  __device__ void add_outliers(float x, float centre, float limit) {
    const float from_centre = x - centre;
    if (from_centre * from_centre <= limit) return;
    const double far = static_cast<double>(x) - centre;
    far3 += far * far * far;
    far4 += far * far * far * far;
  }
};

// Minimum and maximum of two channels.
template <typename T>
struct ChannelPairRange {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  Pair least = broadcast_to_pair(INFINITY), largest = broadcast_to_pair(-INFINITY);

  __device__ __forceinline__ void add(Pack<T, 2> pair) {
    const Pair x(pair.values[0], pair.values[1]);
    least = __hmin2(least, x);
    largest = __hmax2(largest, x);
  }
  __device__ float minimum_of_channel(int channel) const {
    return to_float(channel == 0 ? least.x : least.y);
  }
  __device__ float maximum_of_channel(int channel) const {
    return to_float(channel == 0 ? largest.x : largest.y);
  }
  __device__ static Pair broadcast_to_pair(float x) {
    return Pair(from_float<T>(x), from_float<T>(x));
  }
};

// Sum over the four lanes that share a channel; every lane receives it.
template <typename Number>
__device__ Number sum_channel_lanes(Number x) {
  x += __shfl_xor_sync(kAllLanes, x, 8);
  return x + __shfl_xor_sync(kAllLanes, x, 16);
}

// A warp processes 16 channels, two per lane. The four lanes of a channel process rows two apart,
// which fall into different banks.
template <typename T, typename Tile>
class ChannelMoments {
 public:
  __device__ ChannelMoments(const MomentArguments& a, int head)
      : lane_(threadIdx.x % 32), channel_(threadIdx.x / 32 * 16 + lane_ % 8 * 2) {
    for (int i = 0; i < 2; ++i) {
      if (channel_ + i >= a.record.dim) continue;
      const auto at = head * a.record.dim + channel_ + i;
      centre_[i] = a.shift.centre[at];
      limit_[i] = a.shift.limit[at];
      product_[i] = a.shift.product[at];
    }
  }

  __device__ bool has_shift() const { return product_[0] != 0.0f || product_[1] != 0.0f; }

  __device__ void add(const char* tile, const TileIterator<Tile>& walk) {
    const auto position = walk.chunk.position;
    const float row_u =
        log2f(static_cast<float>(position + walk.offset + lane_ + 1)) - log2_of_position(position);
    const bool has_outliers = walk.rows() == Tile::kRows ? add_rows<true>(tile, walk, row_u)
                                                         : add_rows<false>(tile, walk, row_u);
    if (has_outliers) add_outliers(tile, walk.rows());
  }

  // Sums a whole chunk of few rows in float64.
  __device__ void add_short_chunk(MomentSharedMemory<Tile>& memory, const MomentArguments& a,
                                  int head, const char* tile, const TileIterator<Tile>& walk) {
    if (lane_ >= 8) return;
    const auto dim = a.record.dim;
    float* to = a.chunk_sums + (walk.index * a.heads + head) * 2 * dim;
    for (int c = 0; c < 2; ++c) {
      const int channel = channel_ + c;
      if (channel >= dim) return;
      double sum = 0, squares = 0;
      for (int row = 0; row < walk.rows(); ++row) {
        const float x = to_float(reinterpret_cast<const T*>(channel_address(tile, row))[c]);
        const double y = static_cast<double>(x) - centre_[c], t = walk.chunk.position + row;
        sum += y;
        squares += y * y;
        memory.sums[kSumYT][channel] += y * t;
        memory.sums[kSumYU][channel] += y * log2(t + 1);
        memory.sums[kSumY3][channel] += y * y * y;
        memory.sums[kSumY4][channel] += y * y * (y * y);
      }
      memory.sums[kSumY][channel] += sum;
      memory.sums[kSumY2][channel] += squares;
      to[channel] = static_cast<float>(sum);
      to[dim + channel] = static_cast<float>(squares);
    }
    for (int row = 0; row < walk.rows(); ++row) range_.add(load_pair(tile, row));
  }

  // Subtracts the shift of each channel (MomentShift::product) from the rows of the tile.
  __device__ void shift(char* tile, int rows) const {
    if (!has_shift()) return;
    for (int i = 0; i < Tile::kRows / 4; ++i) {
      const int row = lane_row(i);
      if (row >= rows) continue;
      auto& pair = *reinterpret_cast<Pack<T, 2>*>(channel_address(tile, row));
      for (int c = 0; c < 2; ++c)
        pair.values[c] = from_float<T>(to_float(pair.values[c]) - product_[c]);
    }
  }

  __device__ void finish_chunk(MomentSharedMemory<Tile>& memory, const MomentArguments& a, int head,
                               const TileIterator<Tile>& walk) {
    const double begin_t = walk.chunk.position;
    const double u = log2_of_position(walk.chunk.position);
    const auto dim = a.record.dim;
    float* to = a.chunk_sums + (walk.index * a.heads + head) * 2 * dim;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      auto& s = sums_[c];
      const int channel = channel_ + c;
      const float of_chunk[6] = {sum_channel_lanes(s.y),  sum_channel_lanes(s.y2),
                                 sum_channel_lanes(s.yt), sum_channel_lanes(s.yu),
                                 sum_channel_lanes(s.y3), sum_channel_lanes(s.y4)};
      s.y = s.y2 = s.yt = s.yu = s.y3 = s.y4 = 0;
      if (lane_ >= 8) continue;
      const double y = of_chunk[kSumY];
      memory.sums[kSumY][channel] += y;
      memory.sums[kSumY2][channel] += of_chunk[kSumY2];
      memory.sums[kSumYT][channel] += of_chunk[kSumYT] + begin_t * y;
      memory.sums[kSumYU][channel] += of_chunk[kSumYU] + u * y;
      memory.sums[kSumY3][channel] += of_chunk[kSumY3];
      memory.sums[kSumY4][channel] += of_chunk[kSumY4];
      if (channel >= dim) continue;
      to[channel] = of_chunk[kSumY];
      to[dim + channel] = of_chunk[kSumY2];
    }
  }

  __device__ void store(const MomentSharedMemory<Tile>& memory, const MomentArguments& a,
                        double* record) {
    const auto dim = a.record.dim;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      auto& s = sums_[c];
      float least = range_.minimum_of_channel(c), largest = range_.maximum_of_channel(c);
      for (int distance = 8; distance <= 16; distance *= 2) {
        least = fminf(least, __shfl_xor_sync(kAllLanes, least, distance));
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
      }
      const double far3 = sum_channel_lanes(s.far3), far4 = sum_channel_lanes(s.far4);
      const int channel = channel_ + c;
      if (lane_ >= 8 || channel >= dim) continue;
      double* sums = record + a.record.sums_offset() + channel;
      for (int i = 0; i < 6; ++i)
        sums[i * dim] = memory.sums[i][channel] + (i == kSumY3 ? far3 : i == kSumY4 ? far4 : 0.0);
      record[a.record.least_offset() + channel] = least;
      record[a.record.largest_offset() + channel] = largest;
    }
  }

 private:
  // Returns whether the value is an outlier.
  template <bool kWhole>
  __device__ __forceinline__ bool add_rows(const char* tile, const TileIterator<Tile>& walk,
                                           float row_u) {
    const int rows = walk.rows();
    const auto begin = static_cast<float>(walk.offset + lane_row(0));
    bool has_outliers = false;
#pragma unroll
    for (int i = 0; i < Tile::kRows / 4; ++i) {
      const int row = lane_row(i);
      const float u = __shfl_sync(kAllLanes, row_u, row);
      if (!kWhole && row >= rows) continue;
      const float t = begin + static_cast<float>(i / 2 * 8 + i % 2);
      const auto pair = load_pair(tile, row);
      range_.add(pair);
#pragma unroll
      for (int c = 0; c < 2; ++c)
        has_outliers |= sums_[c].add(to_float(pair.values[c]), centre_[c], limit_[c], t, u);
    }
    return has_outliers;
  }

  __device__ __forceinline__ void add_outliers(const char* tile, int rows) {
    for (int i = 0; i < Tile::kRows / 4; ++i) {
      if (lane_row(i) >= rows) continue;
      const auto pair = load_pair(tile, lane_row(i));
      for (int c = 0; c < 2; ++c)
        sums_[c].add_outliers(to_float(pair.values[c]), centre_[c], limit_[c]);
    }
  }

  __device__ int lane_row(int i) const {
    return i / 2 * 8 + lane_ / 8 * 2 + i % 2;
  }
  __device__ Pack<T, 2> load_pair(const char* tile, int row) const {
    return *reinterpret_cast<const Pack<T, 2>*>(channel_address(tile, row));
  }
  template <typename Char>
  __device__ Char* channel_address(Char* tile, int row) const {
    return tile + row * kPitch<Tile::kWidth> + channel_ * 2;
  }
  // u = log2(position + 1) of the chunk's first row; within the chunk, u is summed relative to this
  // value.
  __device__ static float log2_of_position(std::int32_t position) {
    return log2f(static_cast<float>(position + 1));
  }

  int lane_;
  int channel_;
  float centre_[2] = {}, limit_[2] = {}, product_[2] = {};
  ChannelSums sums_[2];
  ChannelPairRange<T> range_;  // range of the segment
};

}  // namespace qkscope::cuda
