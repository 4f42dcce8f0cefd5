// Row norms of the moment kernel for 16-bit types.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/statistics/moment_channels.cuh"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {

// L2 norms of rows and of rotary pairs. Each warp of the block processes kWarpRows consecutive rows
// at a time.
template <typename T, typename Tile>
class RowNorms {
 public:
  __device__ RowNorms(const MomentArguments& a)
      : lane_(threadIdx.x % 32),
        dim_(static_cast<int>(a.record.dim)),
        pairs_(static_cast<int>(a.record.pairs)),
        interleaved_(a.interleaved) {}

  __device__ void add(const char* tile) {
    constexpr int kStep = Tile::kBlockThreads / 32 * kWarpRows;
    const char* rows = tile + threadIdx.x / 32 * kWarpRows * kPitch<Tile::kWidth>;
#pragma unroll
    for (int i = 0; i < Tile::kRows / kStep; ++i, rows += kStep * kPitch<Tile::kWidth>) {
      float squares[kWarpRows];  // rows beyond the chunk are zero
      if (2 * pairs_ == Tile::kWidth && !interleaved_)
        add_pairs<true>(rows, squares);
      else if (pairs_ == 0)
        add_pairs<false>(rows, squares);
      else
        add_other_pairs(rows, squares);
      const float norm = sqrt_fast(sum_of_row(squares));
      of_rows_ += norm;
      norm_max_ = fmaxf(norm_max_, norm);
    }
  }

  // Adds the float32 sums of a chunk to the float64 sums of the block and clears them.
  __device__ void finish_chunk(MomentSharedMemory<Tile>& memory) {
    const int thread = threadIdx.x;
#pragma unroll
    for (int j = 0; j < Tile::kLanePairs; ++j) {
      if (pair_of(j) < pairs_) memory.pairs[thread / 32][pair_of(j)] += of_pairs_[j];
      of_pairs_[j] = 0;
    }
    const float total = warp_sum(lane_ % kRowLanes == 0 ? of_rows_ : 0.0f);  // each row once
    const float largest = warp_max(norm_max_);
    of_rows_ = 0;
    if (lane_ != 0) return;
    memory.norms[thread / 32] += total;
    memory.norm_max[thread / 32] = largest;
  }

  // Adds the sums of all warps and writes them into the record; called by the warps of one role
  // after all warps have finished their chunks.
  __device__ void store(const MomentSharedMemory<Tile>& memory, const MomentArguments& a,
                        double* record) const {
    const int thread = thread_of_role<Tile>();
    if (thread < pairs_) {
      double sum = 0;
      for (const auto& pairs : memory.pairs) sum += pairs[thread];
      record[a.record.offset_of_pair_magnitudes() + thread] = sum;
    }
    if (thread != 0) return;
    double sum = 0;
    float largest = 0;
    for (int i = 0; i < Tile::kBlockThreads / 32; ++i) {
      sum += memory.norms[i];
      largest = fmaxf(largest, memory.norm_max[i]);
    }
    record[a.record.norm_offset()] = sum;
    record[a.record.norm_max_offset()] = largest;
  }

 private:
  static constexpr int kWarpRows = 8;
  static constexpr int kLanePairs = Tile::kLanePairs;
  static constexpr int kRowLanes = 32 / kWarpRows;  // adjacent lanes that receive a row's sum

  // Reduces kWarpRows values over the warp; each lane receives the sum of one row.
  __device__ __forceinline__ float sum_of_row(const float (&of_lane)[kWarpRows]) const {
    float sums[kWarpRows];
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) sums[i] = of_lane[i];
    reduce_across_lanes<kWarpRows / 2, 16>(sums);
    reduce_across_lanes<kWarpRows / 4, 8>(sums);
    reduce_across_lanes<kWarpRows / 8, 4>(sums);
    float sum = sums[0];
#pragma unroll
    for (int distance = kRowLanes / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    return sum;
  }

  // Returns the index of a lane's j-th rotary pair. Lanes hold consecutive pairs (i, i + kWidth /
  // 2) if all channels are rotated.
  __device__ int pair_of(int j) const {
    return 2 * pairs_ == Tile::kWidth && !interleaved_ ? lane_ * kLanePairs + j : lane_ + 32 * j;
  }

  // Each lane processes kLanePairs channels starting at lane * kLanePairs, and kLanePairs channels
  // starting at lane * kLanePairs + kWidth / 2.
  template <bool kPairs>
  __device__ __forceinline__ void add_pairs(const char* rows, float (&squares)[kWarpRows]) {
    using Lane = Pack<T, kLanePairs>;
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const auto* row = reinterpret_cast<const Lane*>(rows + i * kPitch<Tile::kWidth>);
      const Lane ones = row[lane_], others = row[lane_ + 32];
      squares[i] = 0;
#pragma unroll
      for (int j = 0; j < kLanePairs; ++j) {
        const float one = to_float(ones.values[j]), other = to_float(others.values[j]);
        const float square = fmaf(one, one, other * other);
        if constexpr (kPairs) of_pairs_[j] += sqrt_fast(square);
        squares[i] += square;
      }
    }
  }

  // Adds the magnitudes of rotary pairs that are interleaved or cover only some of the channels.
  __device__ void add_other_pairs(const char* rows, float (&squares)[kWarpRows]) {
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const char* x = rows + i * kPitch<Tile::kWidth>;
      squares[i] = 0;
#pragma unroll
      for (int j = 0; j < kLanePairs; ++j) {
        const int pair = lane_ + 32 * j;
        if (pair >= pairs_) continue;
        const float one = at(x, interleaved_ ? 2 * pair : pair);
        const float other = at(x, interleaved_ ? 2 * pair + 1 : pair + pairs_);
        const float square = fmaf(one, one, other * other);
        of_pairs_[j] += sqrt_fast(square);
        squares[i] += square;
      }
      for (int channel = 2 * pairs_ + 2 * lane_; channel < dim_; channel += 64) {
        const float one = at(x, channel), other = at(x, channel + 1);
        squares[i] = fmaf(one, one, fmaf(other, other, squares[i]));
      }
    }
  }

  __device__ static float at(const char* row, int channel) {
    return to_float(reinterpret_cast<const T*>(row)[channel]);
  }

  int lane_, dim_, pairs_;
  bool interleaved_;
  float of_rows_ = 0, norm_max_ = 0;
  float of_pairs_[Tile::kLanePairs] = {};
};

}  // namespace qkscope::cuda
