// What one warp does with one tile of keys, all in registers: scores, mask, running softmax, and
// the sum of values. A warp holds kBands bands of 16 queries. Of a band's 16 x 8 fragments a lane
// holds rows g and g + 8 (g = lane / 4; "half" 0 and 1) and columns 2t, 2t + 1 (t = lane % 4).
#pragma once

#include <cmath>
#include <cstdint>

#include "device/cuda/head_tile.cuh"
#include "device/cuda/key_tiles.cuh"

namespace qkscope::cuda {

template <int kBands, int kColumns>
using Fragments = float[kBands][kColumns / 8][4];  // (16 kBands, kColumns) over the warp

template <int kBands>
struct RunningSoftmax {
  float maximum[kBands][2];  // of the unscaled scores so far
  float sum[kBands][2];      // this lane's share of the sum of weights relative to the maximum
};

// Where a lane's row lies in the operand of ldmatrix, in bytes from the tile's begin. For q and v
// the matrices are (rows 0-7, rows 8-15) x (columns 0-7), then columns 8-15; for k, whose rows are
// the columns of the product, (columns 0-7, columns 8-15) x (rows 0-7), then rows 8-15.
template <int kWidth>
__device__ int lane_offset() {
  const int lane = threadIdx.x % 32;
  return lane % 16 * kPitch<kWidth> + lane / 16 * 16;
}
template <int kWidth>
__device__ int lane_offset_of_keys() {
  const int lane = threadIdx.x % 32;
  return (lane % 8 + lane / 16 * 8) * kPitch<kWidth> + lane / 8 % 2 * 16;
}

// scores (queries, keys) = q kᵀ
template <typename T, int kWidth, int kBands, int kKeys>
__device__ __forceinline__ void multiply_keys(Fragments<kBands, kKeys>& scores, std::uint32_t q,
                                              std::uint32_t k) {
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[band][n][i] = 0.0f;
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    std::uint32_t a[kBands][4];
#pragma unroll
    for (int band = 0; band < kBands; ++band)
      load_matrices(a[band], q + band * 16 * kPitch<kWidth> + step * 32);
#pragma unroll
    for (int pair = 0; pair < kKeys / 16; ++pair) {
      std::uint32_t b[4];
      load_matrices(b, k + pair * 16 * kPitch<kWidth> + step * 32);
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        multiply_add<T>(scores[band][2 * pair], a[band], b[0], b[1]);
        multiply_add<T>(scores[band][2 * pair + 1], a[band], b[2], b[3]);
      }
    }
  }
}

// -infinity where a query does not see a key; `row` is the warp's first in `ranges`.
template <int kBands, int kKeys, int kRows>
__device__ __forceinline__ void mask(Fragments<kBands, kKeys>& scores,
                                     const KeyRanges<kRows>& ranges, int row, KeyTile tile) {
  const int lane = threadIdx.x % 32;
  const auto column = tile.begin + lane % 4 * 2;
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = row + band * 16 + half * 8 + lane / 4;
      const auto first = ranges.first[query] - column;
      const auto last = min(ranges.last[query], tile.end - 1) - column;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (n * 8 + i < first || n * 8 + i > last) scores[band][n][2 * half + i] = -INFINITY;
    }
}

// Turns scores into weights 2^(scale (score - maximum)), with the old sums and the values so far
// brought to the new maximum. A tile of which a query sees nothing leaves it as it is, bit by bit.
template <int kWidth, int kBands, int kKeys>
__device__ __forceinline__ void update_softmax(Fragments<kBands, kKeys>& scores,
                                               RunningSoftmax<kBands>& softmax,
                                               Fragments<kBands, kWidth>& values, float scale) {
  float factor[kBands][2];
  bool moved = false;
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float before = softmax.maximum[band][half];
      float maximum = before;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        maximum = fmaxf(maximum, fmaxf(scores[band][n][2 * half], scores[band][n][2 * half + 1]));
      maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, 1));
      maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, 2));
      // A query that has seen no key yet must not subtract infinity from itself.
      const float shift = maximum == -INFINITY ? 0.0f : __fmul_rn(maximum, scale);
      factor[band][half] = exp2_fast(__fmul_rn(before, scale) - shift);
      moved |= factor[band][half] != 1.0f;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[band][n][i] = exp2_fast(fmaf(scores[band][n][i], scale, -shift));
          sum += scores[band][n][i];
        }
      softmax.maximum[band][half] = maximum;
      softmax.sum[band][half] = fmaf(softmax.sum[band][half], factor[band][half], sum);
    }
  // In a long scan the maxima rarely move.
  if (!__any_sync(kAllLanes, moved)) return;
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) values[band][n][i] *= factor[band][i / 2];
}

// values (queries, kWidth) += weights v. The weights' C fragments are A fragments as they stand:
// those of 8 keys are the left half of a 16 x 16 operand, those of the next 8 the right half.
template <typename T, int kWidth, int kBands, int kKeys>
__device__ __forceinline__ void add_values(Fragments<kBands, kWidth>& values,
                                           const Fragments<kBands, kKeys>& weights,
                                           std::uint32_t v) {
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    std::uint32_t a[kBands][4];
#pragma unroll
    for (int band = 0; band < kBands; ++band)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &weights[band][2 * step + i / 2][i % 2 * 2];
        a[band][i] = packed<T>(pair[0], pair[1]);
      }
#pragma unroll
    for (int pair = 0; pair < kWidth / 16; ++pair) {
      std::uint32_t b[4];
      load_matrices_transposed(b, v + step * 16 * kPitch<kWidth> + pair * 32);
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        multiply_add<T>(values[band][2 * pair], a[band], b[0], b[1]);
        multiply_add<T>(values[band][2 * pair + 1], a[band], b[2], b[3]);
      }
    }
  }
}

// values / sum, rounded to T, into the warp's rows of a tile.
template <typename T, int kWidth, int kBands>
__device__ __forceinline__ void write_quotients(char* tile, const RunningSoftmax<kBands>& softmax,
                                                const Fragments<kBands, kWidth>& values) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = softmax.sum[band][half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      const float inverse = 1.0f / sum;
      char* row = tile + (band * 16 + half * 8 + lane / 4) * kPitch<kWidth> + lane % 4 * 4;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n)
        *reinterpret_cast<std::uint32_t*>(row + n * 16) =
            packed<T>(values[band][n][2 * half] * inverse, values[band][n][2 * half + 1] * inverse);
    }
}

}  // namespace qkscope::cuda
