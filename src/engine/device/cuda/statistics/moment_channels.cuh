// Tiles of the moment kernel for 16-bit types, and its moments per channel: power sums and ranges.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/statistics/statistics_moments.h"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {

// The warps of a block have two roles: kWarps warps sum powers of channels, as
// many others compute the Gram matrix (moment_products.cuh); all compute norms of rows
// (moment_norms.cuh).
template <int kHeadWidth>
struct MomentTile {
  static constexpr int kWidth = kHeadWidth;  // dim, padded
  static constexpr int kBlocks = kWidth / 16;
  static constexpr int kWarps = kBlocks;        // of one role
  static constexpr int kThreads = kWarps * 32;  // of one role
  static constexpr int kBlockThreads = 2 * kThreads;
  static constexpr int kRows = 128;
  static constexpr int kStages = 2;
  static constexpr int kLanePairs = kWidth / 64;  // rotary pairs per lane
  static constexpr int kBytes = kRows * kPitch<kWidth>;
};

// A tile in shared memory: up to kRows rows of a chunk.
struct LoadedTile {
  int rows;  // 0 after the last tile of the segment
  int chunk_rows;
  int position;  // of the first row of the chunk
  int chunk;     // index
  bool ends_chunk;
};

template <typename Tile>
struct MomentSharedMemory {
  double products[4 * (Tile::kBlocks + 1)][Tile::kThreads];  // per thread of the Gram matrix
  double sums[6][Tile::kWidth];                              // indexed by MomentSumRow
  double pairs[Tile::kBlockThreads / 32][Tile::kWidth / 2];  // per warp
  double norms[Tile::kBlockThreads / 32];
  float norm_max[Tile::kBlockThreads / 32];
  LoadedTile loaded[Tile::kStages];
  alignas(16) char tiles[Tile::kStages][Tile::kBytes];
  // Right factor of the products with position, (kRows, 8) per tile: 1, t and u relative to the
  // first row of the chunk, u as the sum of three 16-bit values, then zeros.
  alignas(16) uint4 positions[Tile::kStages][Tile::kRows];
};

template <typename Tile>
__device__ int thread_of_role() {
  return static_cast<int>(threadIdx.x) % Tile::kThreads;
}

// Barrier of all warps of a block, which the two roles reach at different places of the code.
template <typename Tile>
__device__ __forceinline__ void synchronize_roles() {
  asm volatile("barrier.sync 1, %0;" ::"n"(Tile::kBlockThreads) : "memory");
}

// Chunks with at most this many rows, such as the first tokens of a document, are summed in
// float64, because their spread can be far smaller than the shift that is subtracted.
constexpr int kFewRows = 8;

// log2(position + 1) of the first row of a chunk; within the chunk, u is relative to this value.
__device__ inline float log2_of_position(std::int32_t position) {
  return log2f(static_cast<float>(position + 1));
}

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
  float y = 0, y2 = 0, y3 = 0, y4 = 0;  // sums of the chunk
  double far3 = 0, far4 = 0;            // powers of outliers, sums of the segment
};

// Both values of a pair as float32, with one instruction each.
template <typename T>
__device__ __forceinline__ float2 widen(Pack<T, 2> pair) {
  const auto bits = reinterpret_cast<const std::uint32_t&>(pair);
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
  else
    return __half22float2(reinterpret_cast<const __half2&>(bits));
}

// Running minimum and maximum of two channels.
template <typename T>
struct ChannelPairRange {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  Pair least = broadcast_to_pair(INFINITY), largest = broadcast_to_pair(-INFINITY);

  __device__ __forceinline__ void add(Pack<T, 2> pair) {
    const Pair x(pair.values[0], pair.values[1]);
    least = __hmin2(least, x);
    largest = __hmax2(largest, x);
  }
  __device__ __forceinline__ void merge(const ChannelPairRange& other) {
    least = __hmin2(least, other.least);
    largest = __hmax2(largest, other.largest);
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

// Sum over the four lanes that share a channel; every lane receives the sum.
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

  __device__ void add(const char* tile, int rows) {
    if (rows == Tile::kRows)
      add_rows<true>(tile, rows);
    else
      add_rows<false>(tile, rows);
  }

  // Sums a whole chunk of few rows in float64.
  __device__ void add_short_chunk(MomentSharedMemory<Tile>& memory, const MomentArguments& a,
                                  int head, const char* tile, const LoadedTile& loaded) {
    if (lane_ >= 8) return;
    const auto dim = a.record.dim;
    float* to = a.chunk_sums + (loaded.chunk * a.heads + head) * 2 * dim;
    for (int c = 0; c < 2; ++c) {
      const int channel = channel_ + c;
      if (channel >= dim) return;
      double sum = 0, squares = 0;
      for (int row = 0; row < loaded.rows; ++row) {
        const float x = to_float(reinterpret_cast<const T*>(channel_address(tile, row))[c]);
        const double y = static_cast<double>(x) - centre_[c];
        const double z = static_cast<double>(x) - product_[c], t = loaded.position + row;
        sum += y;
        squares += y * y;
        memory.sums[kSumZT][channel] += z * t;
        memory.sums[kSumZU][channel] += z * log2(t + 1);
        memory.sums[kSumY3][channel] += y * y * y;
        memory.sums[kSumY4][channel] += y * y * (y * y);
      }
      memory.sums[kSumY][channel] += sum;
      memory.sums[kSumY2][channel] += squares;
      to[channel] = static_cast<float>(sum);
      to[dim + channel] = static_cast<float>(squares);
    }
    for (int row = 0; row < loaded.rows; ++row) range_.add(load_pair(tile, row));
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
                               const LoadedTile& loaded) {
    const auto dim = a.record.dim;
    float* to = a.chunk_sums + (loaded.chunk * a.heads + head) * 2 * dim;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      auto& s = sums_[c];
      const int channel = channel_ + c;
      const float y = sum_channel_lanes(s.y), y2 = sum_channel_lanes(s.y2);
      const float y3 = sum_channel_lanes(s.y3), y4 = sum_channel_lanes(s.y4);
      s.y = s.y2 = s.y3 = s.y4 = 0;
      if (lane_ >= 8) continue;
      memory.sums[kSumY][channel] += y;
      memory.sums[kSumY2][channel] += y2;
      memory.sums[kSumY3][channel] += y3;
      memory.sums[kSumY4][channel] += y4;
      if (channel >= dim) continue;
      to[channel] = y;
      to[dim + channel] = y2;
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
  template <bool kWhole>
  __device__ __forceinline__ void add_rows(const char* tile, int rows) {
    ChannelPairRange<T> range;
    float y3[2] = {}, y4[2] = {};
#pragma unroll 16
    for (int i = 0; i < Tile::kRows / 4; ++i) {
      const int row = lane_row(i);
      if (!kWhole && row >= rows) continue;
      const auto pair = load_pair(tile, row);
      range.add(pair);
      const float2 x = widen(pair);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float y = (c == 0 ? x.x : x.y) - centre_[c], square = y * y;
        sums_[c].y += y;
        sums_[c].y2 += square;
        y3[c] = fmaf(square, y, y3[c]);
        y4[c] = fmaf(square, square, y4[c]);
      }
    }
    range_.merge(range);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float below = range.minimum_of_channel(c) - centre_[c];
      const float above = range.maximum_of_channel(c) - centre_[c];
      if (fmaxf(below * below, above * above) > limit_[c]) {
        add_powers_with_outliers(tile, rows, c);
      } else {
        sums_[c].y3 += y3[c];
        sums_[c].y4 += y4[c];
      }
    }
  }

  // Third and fourth powers of outliers are summed in float64: one outlier can outweigh all other
  // values, and float32 would lose them.
  __device__ __forceinline__ void add_powers_with_outliers(const char* tile, int rows, int c) {
    for (int i = 0; i < Tile::kRows / 4; ++i) {
      if (lane_row(i) >= rows) continue;
      const float x = to_float(load_pair(tile, lane_row(i)).values[c]);
      const float y = x - centre_[c], square = y * y;
      const bool is_outlier = !(square <= limit_[c]);
      const double far = is_outlier ? static_cast<double>(x) - centre_[c] : 0.0;
      sums_[c].far3 += far * far * far;
      sums_[c].far4 += far * far * far * far;
      if (is_outlier) continue;
      sums_[c].y3 = fmaf(square, y, sums_[c].y3);
      sums_[c].y4 = fmaf(square, square, sums_[c].y4);
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
  int lane_;
  int channel_;
  float centre_[2] = {}, limit_[2] = {}, product_[2] = {};
  ChannelSums sums_[2];
  ChannelPairRange<T> range_;  // range of the segment
};

}  // namespace qkscope::cuda
