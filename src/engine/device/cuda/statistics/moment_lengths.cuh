// Moments per row: norms of rows and of their rotary pairs.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/statistics/moment_tiles.cuh"

namespace qkscope::cuda {

// Norms of rows and of rotary pairs; a warp takes every kWarps-th row of a tile.
template <typename T, typename Tile>
class Lengths {
 public:
  __device__ Lengths(const MomentArguments& a)
      : lane_(threadIdx.x % 32),
        dim_(static_cast<int>(a.record.dim)),
        pairs_(static_cast<int>(a.record.pairs)),
        interleaved_(a.interleaved) {}

  __device__ void add(const char* tile) {
    const char* rows = tile + threadIdx.x / 32 * kWarpRows * kPitch<Tile::kWidth>;
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

  __device__ void end_chunk() {
#pragma unroll
    for (int j = 0; j < Tile::kLanePairs; ++j) {
      pair_totals_[j] += of_pairs_[j];
      of_pairs_[j] = 0;
    }
    total_ += of_rows_;
    of_rows_ = 0;
  }

  // Called by all threads of the block.
  __device__ void store(MomentMemory<Tile>& memory, const MomentArguments& a, double* record) {
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int j = 0; j < Tile::kLanePairs; ++j)
      if (pair_of(j) < pairs_) memory.pairs[warp][pair_of(j)] = pair_totals_[j];
    double total = lane_ % kRowLanes == 0 ? total_ : 0.0;  // count each row once
    for (int distance = kRowLanes; distance < 32; distance *= 2) {
      total += __shfl_xor_sync(kAllLanes, total, distance);
      norm_max_ = fmaxf(norm_max_, __shfl_xor_sync(kAllLanes, norm_max_, distance));
    }
    if (lane_ == 0) {
      memory.norms[warp] = total;
      memory.norm_max[warp] = norm_max_;
    }
    __syncthreads();
    const int thread = threadIdx.x;
    if (thread < pairs_) {
      double sum = 0;
      for (int i = 0; i < Tile::kWarps; ++i) sum += memory.pairs[i][thread];
      record[a.record.pair_abs() + thread] = sum;
    }
    if (thread != 0) return;
    double sum = 0;
    float largest = 0;
    for (int i = 0; i < Tile::kWarps; ++i) {
      sum += memory.norms[i];
      largest = fmaxf(largest, memory.norm_max[i]);
    }
    record[a.record.norm()] = sum;
    record[a.record.norm_max()] = largest;
  }

 private:
  static constexpr int kWarpRows = Tile::kRows / Tile::kWarps;
  static constexpr int kLanePairs = Tile::kLanePairs;
  static constexpr int kRowLanes =
      32 / kWarpRows;  // adjacent lanes that receive the sum of one row

  // Reduces over all lanes and returns the sum of one row to each lane.
  __device__ __forceinline__ float sum_of_row(const float (&of_lane)[kWarpRows]) const {
    float sums[kWarpRows];
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) sums[i] = of_lane[i];
    add_halves<kWarpRows / 2, 16>(sums);
    add_halves<kWarpRows / 4, 8>(sums);
    if constexpr (kWarpRows > 4) add_halves<kWarpRows / 8, 4>(sums);
    static_assert(kWarpRows == 4 || kWarpRows == 8);
    float sum = sums[0];
#pragma unroll
    for (int distance = kRowLanes / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    return sum;
  }

  // Pair index of a lane. Lanes hold consecutive pairs (i, i + kWidth / 2) if all channels are
  // rotated.
  __device__ int pair_of(int j) const {
    return 2 * pairs_ == Tile::kWidth && !interleaved_ ? lane_ * kLanePairs + j : lane_ + 32 * j;
  }

  // Channels lane * kLanePairs ... and the channels kWidth / 2 further.
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

  // Interleaved pairs, or partial rotation of some channels.
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
  double total_ = 0;
  double pair_totals_[Tile::kLanePairs] = {};
};

}  // namespace qkscope::cuda
