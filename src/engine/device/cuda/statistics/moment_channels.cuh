// Moment kernel for 16-bit types: the tiles of rows in shared memory, and the sums per channel and
// per row (powers, ranges, row norms, magnitudes of rotary pairs).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/statistics/statistics_moments.h"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {

template <int kHeadWidth>
struct MomentTile {
  static constexpr int kWidth = kHeadWidth;  // dim, padded
  static constexpr int kBlocks = kWidth / 16;
  static constexpr int kThreads = kBlocks * 32;
  static constexpr int kRows = 128;
  static constexpr int kStages = 2;
  static constexpr int kBytes = kRows * kPitch<kWidth>;
  // A group of kLanes adjacent threads reads a row, four channels per thread. The kGroups groups
  // sum different rows; sum_over_groups() adds up their sums of each channel.
  static constexpr int kLanes = kWidth / 4;
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kLaneRows = kRows / kGroups;
};

// Rows of a chunk loaded into a tile in shared memory, at most kRows.
struct LoadedChunkRows {
  int rows;      // 0 after the last tile of the segment
  int position;  // of the first row of the chunk
  int chunk;     // index
  bool ends_chunk;
};

template <typename Tile>
struct MomentSharedMemory {
  double position_sums[2][Tile::kWidth];            // sums of z t and z u, see ChannelSum
  double outliers[Tile::kGroups][2][Tile::kWidth];  // third and fourth powers
  double norms[Tile::kBlocks];                      // per warp
  float norm_max[Tile::kBlocks];                    // per warp
  float shifts[2][Tile::kWidth];                    // MomentShift::centre and limit
  LoadedChunkRows loaded[Tile::kStages];
  alignas(16) float exchange[2][Tile::kGroups][Tile::kWidth];  // see sum_over_groups()
  alignas(16) char tiles[Tile::kStages][Tile::kBytes];
  // Right factor of X^T [1 t u], (kRows, 8) per tile: 1, position t, three 16-bit parts of
  // u = log2(t + 1), and three zeros. t and u are relative to the first row of the chunk.
  alignas(16) uint4 positions[Tile::kStages][Tile::kRows];
};

// Returns u = log2(position + 1). Within a chunk, u is stored relative to that of the first row.
__device__ inline float log2_of_position(std::int32_t position) {
  return log2f(static_cast<float>(position + 1));
}

template <typename Tile>
struct MomentTileIterator {
  const MomentChunk* chunks;
  std::int32_t index, end;
  MomentChunk chunk = {};
  std::int32_t offset = 0;  // first row of the tile within its chunk

  __device__ MomentTileIterator(const MomentChunk* all, MomentSegment segment)
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

// Converts two 16-bit values to float32, with one instruction each.
template <typename T>
__device__ __forceinline__ float2 pair_to_float2(Pack<T, 2> pair) {
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

// Channels of rotary (RoPE) pair i: none, (i, i + kWidth / 2), (2i, 2i + 1), or (i, i + pairs) with
// fewer pairs than kWidth / 2.
enum class RotaryPairing { kNone, kHalves, kAdjacent, kPartialHalves };

// Lane l of a group sums channels 2l, 2l + 1, kWidth / 2 + 2l and kWidth / 2 + 2l + 1, so one lane
// has both channels of a rotary pair unless the rotation is partial.
template <typename T, typename Tile>
class ChannelMoments {
 public:
  // Copies the channel shifts (MomentShift) to shared memory; call __syncthreads() before add().
  __device__ ChannelMoments(MomentSharedMemory<Tile>& memory, const MomentArguments& a, int head)
      : lane_(threadIdx.x % Tile::kLanes),
        group_(threadIdx.x / Tile::kLanes),
        dim_(static_cast<int>(a.record.dim)),
        pairs_(static_cast<int>(a.record.pairs)) {
    if (pairs_ > 0)
      pairing_ = a.interleaved          ? RotaryPairing::kAdjacent
                 : 2 * pairs_ == kWidth ? RotaryPairing::kHalves
                                        : RotaryPairing::kPartialHalves;
    const float* shift = thread_sum_index() == 0 ? a.shift.centre : a.shift.limit;
    memory.shifts[thread_sum_index()][thread_channel()] =
        thread_channel() < dim_ ? shift[head * dim_ + thread_channel()] : 0.0f;
  }

  __device__ void add(MomentSharedMemory<Tile>& memory, const char* tile, int rows) {
    if (pairing_ == RotaryPairing::kHalves)
      add_rows<RotaryPairing::kHalves>(memory, tile, rows);
    else if (pairing_ == RotaryPairing::kAdjacent)
      add_rows<RotaryPairing::kAdjacent>(memory, tile, rows);
    else
      add_rows<RotaryPairing::kNone>(memory, tile, rows);
    if (pairing_ == RotaryPairing::kPartialHalves) add_rotary_pair_magnitudes(tile);
  }

  // Subtracts the shift of each channel, product[channel], from the rows of the tile.
  __device__ void subtract_shift(char* tile, int rows, const float* product) const {
    for (int c = 0; c < 4; ++c) {
      if (lane_channel(c) >= dim_ || product[lane_channel(c)] == 0.0f) continue;
#pragma unroll 4
      for (int i = 0; i < Tile::kLaneRows; ++i) {
        T& x = reinterpret_cast<T*>(tile + tile_row(i) * kPitch<kWidth>)[lane_channel(c)];
        if (tile_row(i) < rows) x = from_float<T>(to_float(x) - product[lane_channel(c)]);
      }
    }
  }

  __device__ void report_non_finite(const MomentArguments& a, int chunk_and_head) const {
    if (!isfinite(y_[0] + y_[1] + y_[2] + y_[3])) atomicMin(a.not_finite, chunk_and_head);
  }

  // Writes all sums except the Gram matrix into the block's record (MomentRecordLayout).
  __device__ void store(MomentSharedMemory<Tile>& memory, const MomentArguments& a,
                        double* record) const {
    const double norms = warp_sum(static_cast<double>(norms_));
    const float norm_max = warp_max(norm_max_);
    if (threadIdx.x % 32 == 0) {
      memory.norms[threadIdx.x / 32] = norms;
      memory.norm_max[threadIdx.x / 32] = norm_max;
    }
    const double first_powers = sum_over_groups(memory, y_, y2_);
    const double powers = sum_over_groups(memory, y3_, y4_);
    const double magnitudes = sum_over_groups(memory, magnitudes_, magnitudes_);
    float least[4], largest[4];  // least: negated
    for (int c = 0; c < 4; ++c) {
      least[c] = -range_[c / 2].minimum_of_channel(c % 2);
      largest[c] = range_[c / 2].maximum_of_channel(c % 2);
    }
    share_channel_values(memory, least, largest);
    const int sum = thread_sum_index(), channel = thread_channel();
    if (channel < dim_) {
      double* to = record + channel;
      double outliers = 0;
      float extreme = memory.exchange[sum][0][channel];
      for (int group = 0; group < Tile::kGroups; ++group) {
        outliers += memory.outliers[group][sum][channel];
        extreme = fmaxf(extreme, memory.exchange[sum][group][channel]);
      }
      to[(kSumY + sum) * dim_] = first_powers;
      to[(kSumZT + sum) * dim_] = memory.position_sums[sum][channel];
      to[(kSumY3 + sum) * dim_] = powers + outliers;
      to[(kNegatedLeast + sum) * dim_] = extreme;
    }
    // Threads 2l and 2l + 1 hold the summed magnitudes of lane l's first and second rotary pair.
    const int slot = static_cast<int>(threadIdx.x), adjacent = slot / 2 + slot % 2 * Tile::kLanes;
    const int pair = pairing_ == RotaryPairing::kHalves ? slot : adjacent;
    if (slot < kWidth / 2 && pair < pairs_) record[a.record.rotary_offset() + pair] = magnitudes;
    if (threadIdx.x != 0) return;
    double total = 0;
    float most = 0;
    for (int warp = 0; warp < Tile::kBlocks; ++warp) {
      total += memory.norms[warp];
      most = fmaxf(most, memory.norm_max[warp]);
    }
    record[a.record.norm_offset()] = total / kRowCopies;
    record[a.record.norm_max_offset()] = most;
  }

 private:
  static constexpr int kWidth = Tile::kWidth;
  static constexpr int kRowCopies = Tile::kLanes / 8;  // lanes that receive the norm of a row

  template <RotaryPairing kPairing>
  __device__ __forceinline__ void add_rows(MomentSharedMemory<Tile>& memory, const char* tile,
                                           int rows) {
    if (rows == Tile::kRows)
      add_rows<kPairing, true>(memory, tile, rows);
    else
      add_rows<kPairing, false>(memory, tile, rows);
  }

  template <RotaryPairing kPairing, bool kWhole>
  __device__ __forceinline__ void add_rows(MomentSharedMemory<Tile>& memory, const char* tile,
                                           int rows) {
    ChannelPairRange<T> range[2];
    float y3[4] = {}, y4[4] = {}, centre[4];
    for (int c = 0; c < 4; ++c) centre[c] = memory.shifts[0][lane_channel(c)];
#pragma unroll 1
    for (int begin = 0; begin < Tile::kLaneRows; begin += 8) {
      float squares[8];  // squared norms of eight rows, this lane's channels
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int row = tile_row(begin + i);
        squares[i] = 0;
        if (!kWhole && row >= rows) continue;
        float x[4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const auto pair = load_pair(tile, row, half);
          range[half].add(pair);
          const float2 values = pair_to_float2(pair);
          x[2 * half] = values.x;
          x[2 * half + 1] = values.y;
        }
        squares[i] = add_magnitudes_and_sum_squares<kPairing>(x);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float y = x[c] - centre[c], square = y * y;
          y_[c] += y;
          y2_[c] += square;
          y3[c] = fmaf(square, y, y3[c]);
          y4[c] = fmaf(square, square, y4[c]);
        }
      }
      const float norm = sqrt_fast(sum_over_lanes(squares));
      norms_ += norm;
      norm_max_ = fmaxf(norm_max_, norm);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float below = range[c / 2].minimum_of_channel(c % 2) - centre[c];
      const float above = range[c / 2].maximum_of_channel(c % 2) - centre[c];
      if (fmaxf(below * below, above * above) > memory.shifts[1][lane_channel(c)]) {
        add_power_sums_with_outliers(memory, tile, rows, c);
      } else {
        y3_[c] += y3[c];
        y4_[c] += y4[c];
      }
    }
    for (int half = 0; half < 2; ++half) range_[half].merge(range[half]);
  }

  // Adds this lane's rotary pair magnitudes to magnitudes_; returns the lane's sum of squares.
  template <RotaryPairing kPairing>
  __device__ __forceinline__ float add_magnitudes_and_sum_squares(const float (&x)[4]) {
    constexpr int kPartner = kPairing == RotaryPairing::kAdjacent ? 1 : 2;
    const float squares[2] = {fmaf(x[0], x[0], x[kPartner] * x[kPartner]),
                              fmaf(x[3], x[3], x[3 - kPartner] * x[3 - kPartner])};
    if constexpr (kPairing != RotaryPairing::kNone)
      for (int i = 0; i < 2; ++i) magnitudes_[i] += sqrt_fast(squares[i]);
    return squares[0] + squares[1];
  }

  // Adds magnitudes of rotary pairs (i, i + pairs) to magnitudes_; lane l: pairs l and l + kLanes.
  __device__ void add_rotary_pair_magnitudes(const char* tile) {
#pragma unroll 4
    for (int i = 0; i < Tile::kLaneRows; ++i) {
      const auto* x = reinterpret_cast<const T*>(tile + tile_row(i) * kPitch<kWidth>);
      for (int j = 0; j < 2; ++j) {
        const int pair = lane_ + j * Tile::kLanes;
        if (pair >= pairs_) continue;
        const float one = to_float(x[pair]), other = to_float(x[pair + pairs_]);
        magnitudes_[j] += sqrt_fast(fmaf(one, one, other * other));
      }
    }
  }

  // Sums third and fourth powers of channel c, with outliers in float64: one outlier can outweigh
  // all other values, which a float32 sum would then lose.
  __device__ void add_power_sums_with_outliers(MomentSharedMemory<Tile>& memory, const char* tile,
                                               int rows, int c) {
    const float centre = memory.shifts[0][lane_channel(c)],
                limit = memory.shifts[1][lane_channel(c)];
#pragma unroll 1
    for (int i = 0; i < Tile::kLaneRows; ++i) {
      if (tile_row(i) >= rows) continue;
      const float x = to_float(load_pair(tile, tile_row(i), c / 2).values[c % 2]);
      const float y = x - centre, square = y * y;
      if (square <= limit) {
        y3_[c] = fmaf(square, y, y3_[c]);
        y4_[c] = fmaf(square, square, y4_[c]);
        continue;
      }
      const double far = static_cast<double>(x) - centre;
      memory.outliers[group_][0][lane_channel(c)] += far * far * far;
      memory.outliers[group_][1][lane_channel(c)] += far * far * far * far;
    }
  }

  // Sums each squares[i] (of row i) over the lanes of a group; each lane receives one of the sums.
  __device__ __forceinline__ float sum_over_lanes(float (&squares)[8]) const {
    reduce_across_lanes<4, Tile::kLanes / 2>(squares);
    reduce_across_lanes<2, Tile::kLanes / 4>(squares);
    reduce_across_lanes<1, Tile::kLanes / 8>(squares);
    float sum = squares[0];
#pragma unroll
    for (int distance = kRowCopies / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    return sum;
  }

  // Sums `first` and `second` of each channel over all groups. Each thread receives the sum of
  // `first` (if thread_sum_index() is 0) or of `second` for channel thread_channel().
  __device__ double sum_over_groups(MomentSharedMemory<Tile>& memory, const float (&first)[4],
                                    const float (&second)[4]) const {
    share_channel_values(memory, first, second);
    double sum = 0;
    for (int group = 0; group < Tile::kGroups; ++group)
      sum += memory.exchange[thread_sum_index()][group][thread_channel()];
    return sum;
  }
  __device__ void share_channel_values(MomentSharedMemory<Tile>& memory, const float (&first)[4],
                                       const float (&second)[4]) const {
    __syncthreads();  // earlier values may still be read
    write_channel_values(memory.exchange[0], first);
    write_channel_values(memory.exchange[1], second);
    __syncthreads();
  }
  __device__ void write_channel_values(float (*exchange)[kWidth], const float (&values)[4]) const {
    auto* to = reinterpret_cast<float2*>(exchange[group_]);
    to[lane_] = {values[0], values[1]};
    to[Tile::kLanes + lane_] = {values[2], values[3]};
  }
  __device__ int thread_sum_index() const {
    return static_cast<int>(threadIdx.x) / kWidth;
  }
  __device__ int thread_channel() const {
    return static_cast<int>(threadIdx.x) % kWidth;
  }

  // Tile row of this group in step i. Groups of a warp read rows four apart, in different banks.
  __device__ int tile_row(int i) const {
    return i / 4 * 32 + group_ * 4 + i % 4;
  }
  __device__ int lane_channel(int c) const {
    return c / 2 * (kWidth / 2) + 2 * lane_ + c % 2;
  }
  __device__ Pack<T, 2> load_pair(const char* tile, int row, int half) const {
    return *reinterpret_cast<const Pack<T, 2>*>(tile + row * kPitch<kWidth> + half * kWidth +
                                                lane_ * 4);
  }

  int lane_, group_, dim_, pairs_;
  RotaryPairing pairing_ = RotaryPairing::kNone;
  float y_[4] = {}, y2_[4] = {}, y3_[4] = {}, y4_[4] = {}, magnitudes_[4] = {};
  float norms_ = 0, norm_max_ = 0;
  ChannelPairRange<T> range_[2];
};

}  // namespace qkscope::cuda
