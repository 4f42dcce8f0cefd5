// Flash attention in bfloat16 and float16 on the tensor cores. Each block processes a tile of
// queries of one head and loops over the keys that they attend to.
//
// A warp processes one tile of keys entirely in registers: scores, mask, online softmax, and the
// sum of values. It holds kBands bands of 16 queries. In the 16 x 8 fragments of a band, a lane
// holds rows g and g + 8 (g = lane / 4; "half" 0 and 1) and columns 2t, 2t + 1 (t = lane % 4).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/device/cuda/attention/attention_block.cuh"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {

template <int kBands, int kColumns>
using Fragments = float[kBands][kColumns / 8][4];  // (16 kBands, kColumns) over the warp

// Calls use(band, half, row) for each of this lane's query rows, 16 band + 8 half + lane / 4.
template <int kBands, typename Use>
__device__ __forceinline__ void for_each_lane_row(Use use) {
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      use(band, half, band * 16 + half * 8 + static_cast<int>(threadIdx.x) % 32 / 4);
}

// Calls use(n, i) for each of this lane's columns: its i-th of 2 columns in 8-column fragment n.
template <int kColumns, typename Use>
__device__ __forceinline__ void for_each_lane_column(Use use) {
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) use(n, i);
}

// Calls use(value) for each value that this lane holds.
template <int kBands, int kColumns, typename Use>
__device__ __forceinline__ void for_each_lane_value(Fragments<kBands, kColumns>& values, Use use) {
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) use(values[band][n][i]);
}

template <int kBands>
struct RunningSoftmax {
  __device__ RunningSoftmax() {
#pragma unroll
    for (int i = 0; i < 2 * kBands; ++i) {
      maximum[i / 2][i % 2] = -INFINITY;
      sum[i / 2][i % 2] = 0.0f;
    }
  }

  float maximum[kBands][2];  // largest unscaled score so far
  float sum[kBands][2];      // this lane's share of the sum of weights relative to the maximum
};

// Byte offset, in a tile, of the row that a lane passes to ldmatrix, which loads four 8 x 8
// matrices. Their first (row, column) in the tile are, for q and v, (0, 0), (8, 0), (0, 8), (8, 8);
// for k, whose rows are columns of the product, (0, 0), (0, 8), (8, 0), (8, 8).
template <int kWidth>
__device__ int ldmatrix_lane_offset() {
  const int lane = threadIdx.x % 32;
  return lane % 16 * kPitch<kWidth> + lane / 16 * 16;
}
template <int kWidth>
__device__ int ldmatrix_key_lane_offset() {
  const int lane = threadIdx.x % 32;
  return (lane % 8 + lane / 16 * 8) * kPitch<kWidth> + lane / 8 % 2 * 16;
}

// Attention scores (queries, keys) = q kᵀ. queries(step, a) loads fragments of 16 channels of q.
template <typename T, int kWidth, int kBands, int kKeys, typename Queries>
__device__ __forceinline__ void multiply_queries_by_keys(Fragments<kBands, kKeys>& scores,
                                                         Queries queries, std::uint32_t k) {
  for_each_lane_value<kBands, kKeys>(scores, [](float& score) { score = 0.0f; });
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    std::uint32_t a[kBands][4];
    queries(step, a);
#pragma unroll
    for (int pair = 0; pair < kKeys / 16; ++pair) {
      std::uint32_t b[4];
      ldmatrix_x4(b, k + pair * 16 * kPitch<kWidth> + step * 32);
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        mma_m16n8k16<T>(scores[band][2 * pair], a[band], b[0], b[1]);
        mma_m16n8k16<T>(scores[band][2 * pair + 1], a[band], b[2], b[3]);
      }
    }
  }
}

// Overload for queries in shared memory instead of registers.
template <typename T, int kWidth, int kBands, int kKeys>
__device__ __forceinline__ void multiply_queries_by_keys(Fragments<kBands, kKeys>& scores,
                                                         std::uint32_t q, std::uint32_t k) {
  multiply_queries_by_keys<T, kWidth, kBands, kKeys>(
      scores,
      [q](int step, std::uint32_t(&a)[kBands][4]) {
#pragma unroll
        for (int band = 0; band < kBands; ++band)
          ldmatrix_x4(a[band], q + band * 16 * kPitch<kWidth> + step * 32);
      },
      k);
}

// Soft cap: softcap tanh(scale score / softcap), divided by `scale` because the caller multiplies
// by it later. tanh(u) = 1 - 2 / (exp(2u) + 1) has an error of about 1e-7 of the cap.
template <int kBands, int kKeys>
__device__ __forceinline__ void soft_cap_scores(Fragments<kBands, kKeys>& scores, float scale,
                                                float softcap) {
  constexpr float kTwoLog2E = 2.88539008177792681472f;
  const float inner = kTwoLog2E * scale / softcap, outer = softcap / scale;
  for_each_lane_value<kBands, kKeys>(scores, [&](float& score) {
    const float power = exp2_fast(score * inner);
    score = outer * (1.0f - __fdividef(2.0f, fminf(power, 1e30f) + 1.0f));
  });
}

// Sets scores outside a query's key range to -infinity; `row` is the warp's first row in `ranges`.
template <int kBands, int kKeys, int kRows>
__device__ __forceinline__ void mask_scores(Fragments<kBands, kKeys>& scores,
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
      for_each_lane_column<kKeys>([&](int n, int i) {
        if (n * 8 + i < first || n * 8 + i > last) scores[band][n][2 * half + i] = -INFINITY;
      });
    }
}

// Online softmax: replaces scores by weights 2^(scale (score - maximum)) and rescales the previous
// sum and values to the new maximum. A fully masked tile leaves the sum and values bit-identical.
template <int kWidth, int kBands, int kKeys>
__device__ __forceinline__ void update_softmax(Fragments<kBands, kKeys>& scores,
                                               RunningSoftmax<kBands>& softmax,
                                               Fragments<kBands, kWidth>& values, float scale) {
  float factor[kBands][2];
  bool moved = false;
  for_each_lane_row<kBands>([&](int band, int half, int) {
    const float before = softmax.maximum[band][half];
    float maximum = before;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
      maximum = fmaxf(maximum, fmaxf(scores[band][n][2 * half], scores[band][n][2 * half + 1]));
    maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, 1));
    maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, 2));
    // A query without a visible key so far has maximum -infinity; -infinity minus itself is NaN.
    const float shift = maximum == -INFINITY ? 0.0f : __fmul_rn(maximum, scale);
    factor[band][half] = exp2_fast(__fmul_rn(before, scale) - shift);
    moved |= factor[band][half] != 1.0f;
    float sum = 0.0f;
    for_each_lane_column<kKeys>([&](int n, int i) {
      float& score = scores[band][n][2 * half + i];
      score = exp2_fast(fmaf(score, scale, -shift));
      sum += score;
    });
    softmax.maximum[band][half] = maximum;
    softmax.sum[band][half] = fmaf(softmax.sum[band][half], factor[band][half], sum);
  });
  // Rescaling is skipped unless a maximum has grown, which is rare in a long scan over keys.
  if (!__any_sync(kAllLanes, moved)) return;
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) values[band][n][i] *= factor[band][i / 2];
}

// Adds weights times v to values (queries, kWidth). Accumulator (C) fragments of the weights are A
// fragments without shuffles: 8 keys are the left half of a 16 x 16 operand, the next 8 the right.
template <typename T, int kWidth, int kBands, int kKeys>
__device__ __forceinline__ void add_weighted_values(Fragments<kBands, kWidth>& values,
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
        a[band][i] = pack_pair<T>(pair[0], pair[1]);
      }
#pragma unroll
    for (int pair = 0; pair < kWidth / 16; ++pair) {
      std::uint32_t b[4];
      ldmatrix_x4_trans(b, v + step * 16 * kPitch<kWidth> + pair * 32);
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        mma_m16n8k16<T>(values[band][2 * pair], a[band], b[0], b[1]);
        mma_m16n8k16<T>(values[band][2 * pair + 1], a[band], b[2], b[3]);
      }
    }
  }
}

// Stores the log-sum-exp and the maximum score of `queries` rows of the warp, starting at `query`.
template <int kBands>
__device__ __forceinline__ void store_row_stats(const AttentionArguments& a,
                                                const RunningSoftmax<kBands>& softmax,
                                                std::int64_t head, std::int64_t query, int queries,
                                                float scale) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(softmax.sum[band][half]);
      const int row = band * 16 + half * 8 + lane / 4;
      if (lane % 4 != 0 || row >= queries) continue;
      const auto at = (query + row) * a.n_heads + head;
      const float largest = softmax.maximum[band][half];
      a.row_stats.lse[at] = fmaf(largest, scale, log2f(sum));
      a.row_stats.largest[at] = largest;
    }
}

// Writes values divided by the sum of weights of their row, rounded to T, to the warp's tile rows.
template <typename T, int kWidth, int kBands>
__device__ __forceinline__ void write_normalized_output(char* tile,
                                                        const RunningSoftmax<kBands>& softmax,
                                                        const Fragments<kBands, kWidth>& values) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(softmax.sum[band][half]);
      const float inverse = 1.0f / sum;
      char* row = tile + (band * 16 + half * 8 + lane / 4) * kPitch<kWidth> + lane % 4 * 4;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n)
        *reinterpret_cast<std::uint32_t*>(row + n * 16) = pack_pair<T>(
            values[band][n][2 * half] * inverse, values[band][n][2 * half + 1] * inverse);
    }
}

// Tile sizes. With 32 queries per warp each fragment of k and v feeds two products; heads of 256
// leave registers for only 16. Two blocks fit on a multiprocessor (sm_80, sm_90), so that one
// copies or exponentiates while the other multiplies. Heads of 512 have too many columns of v for
// the registers of a warp: each block computes the scores again for one half of the columns.
template <int kHeadWidth>
struct AttentionTileShape {
  static constexpr int kWidth = kHeadWidth;                        // d_head or d_value, padded
  static constexpr int kValueWidth = kWidth < 256 ? kWidth : 256;  // columns of v of a block
  static constexpr int kSlices = kWidth / kValueWidth;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBands = kWidth <= 128 ? 2 : 1;
  static constexpr int kWarpRows = kBands * 16;
  static constexpr int kRows = kWarps * kWarpRows;  // queries of a block
  static constexpr int kKeys = kWidth <= 128 ? 64 : kWidth <= 256 ? 32 : 16;
  static constexpr int kTileBytes = kKeys * kPitch<kWidth>;
  static constexpr int kValueBytes = kKeys * kPitch<kValueWidth>;
  static constexpr int kQueryBytes = kRows * kPitch<kWidth>;
  static constexpr int kSharedBytes =
      kQueryBytes + kTileBytes + kValueBytes + static_cast<int>(sizeof(KeyRanges<kRows>));
};

// Visibility of a key tile for the queries of a warp: fully masked, partly or fully visible.
enum class TileVisibility { none, some, all };

template <typename Shape>
__device__ __forceinline__ TileVisibility tile_visibility(KeyTile tile,
                                                          const KeyRanges<Shape::kRows>& ranges,
                                                          int row) {
  const int query = row + static_cast<int>(threadIdx.x) % Shape::kWarpRows;
  const auto first = ranges.first[query], last = ranges.last[query];
  if (!__any_sync(kAllLanes, first < tile.end && last >= tile.begin)) return TileVisibility::none;
  // The last key tile may be short; its zero-filled rows are outside every query's range.
  const auto end = tile.begin + Shape::kKeys;
  const bool all = first <= tile.begin && last >= end - 1 && tile.end == end;
  return __all_sync(kAllLanes, all) ? TileVisibility::all : TileVisibility::some;
}

template <bool kVectors>
__device__ HeadRows<const std::uint16_t, kVectors> head_rows(const void* data, std::int64_t stride,
                                                             std::int64_t head, int width,
                                                             int begin = 0) {
  return {static_cast<const std::uint16_t*>(data) + head * width + begin, stride, width - begin};
}

// Stores z of a warp's rows through the warp's part of the query buffer, which no other warp reads.
template <typename T, typename Shape, bool kVectors, typename Block>
__device__ __forceinline__ void store_output(
    char* q_warp, const AttentionArguments& a, const Block& block, int row,
    const RunningSoftmax<Shape::kBands>& softmax,
    const Fragments<Shape::kBands, Shape::kValueWidth>& values) {
  const auto d_value = static_cast<int>(a.d_value), begin = block.slice * Shape::kValueWidth;
  __syncwarp();
  write_normalized_output<T, Shape::kValueWidth, Shape::kBands>(q_warp, softmax, values);
  __syncwarp();
  const HeadRows<std::uint16_t, kVectors> z_rows{
      static_cast<std::uint16_t*>(a.z) + block.head * d_value + begin, a.z_stride, d_value - begin};
  store_tile_rows<Shape::kWarpRows, Shape::kValueWidth>(q_warp, z_rows, block.query + row,
                                                        block.queries - row);
}

template <typename T, typename Shape, bool kVectors>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    attention_16bit_kernel(const AttentionArguments a, float scale) {
  constexpr int kWidth = Shape::kWidth, kBands = Shape::kBands, kKeys = Shape::kKeys;
  constexpr int kValueWidth = Shape::kValueWidth;
  extern __shared__ __align__(16) char shared[];
  char* const q_tile = shared;
  char* const k_tile = q_tile + Shape::kQueryBytes;
  char* const v_tile = k_tile + Shape::kTileBytes;
  auto& ranges = *reinterpret_cast<KeyRanges<Shape::kRows>*>(v_tile + Shape::kValueBytes);

  const auto block = this_attention_block<Shape::kRows, Shape::kSlices>(a);
  const auto d_head = static_cast<int>(a.d_head);
  const auto k_rows = head_rows<kVectors>(a.k, a.k_stride, block.kv_head, d_head);
  const auto v_rows = head_rows<kVectors>(a.v, a.v_stride, block.kv_head,
                                          static_cast<int>(a.d_value), block.slice * kValueWidth);
  const auto load_keys = [&](KeyTile tile) {
    load_tile_rows<kKeys, kWidth, Shape::kThreads>(k_tile, k_rows, tile.begin,
                                                   tile.end - tile.begin);
  };
  load_tile_rows<Shape::kRows, kWidth, Shape::kThreads>(
      q_tile, head_rows<kVectors>(a.q, a.row_stride, block.head, d_head), block.query,
      block.queries);
  load_key_ranges(ranges, a, block.query);

  const int row = static_cast<int>(threadIdx.x) / 32 * Shape::kWarpRows;  // the warp's first
  char* const q_warp = q_tile + row * kPitch<kWidth>;
  const auto q_lane = shared_address(q_warp) + ldmatrix_lane_offset<kWidth>();
  const auto k_lane = shared_address(k_tile) + ldmatrix_key_lane_offset<kWidth>();
  const auto v_lane = shared_address(v_tile) + ldmatrix_lane_offset<kValueWidth>();

  Fragments<kBands, kValueWidth> values = {};
  RunningSoftmax<kBands> softmax;
  const KeyTileIterator<Shape::kRows, kKeys> key_tiles(ranges);
  auto tile = key_tiles.next(0);
  load_keys(tile);
  while (tile.is_valid()) {
    Fragments<kBands, kKeys> scores;
    const auto visible = tile_visibility<Shape>(tile, ranges, row);
    wait_for_copies();
    __syncthreads();  // k has arrived, and every warp is done with the previous v
    load_tile_rows<kKeys, kValueWidth, Shape::kThreads>(v_tile, v_rows, tile.begin,
                                                        tile.end - tile.begin);
    if (visible != TileVisibility::none)
      multiply_queries_by_keys<T, kWidth, kBands, kKeys>(scores, q_lane, k_lane);
    const auto next = key_tiles.next(tile.end);
    wait_for_copies();
    __syncthreads();  // v has arrived, and every warp is done with k
    if (next.is_valid()) load_keys(next);
    if (visible != TileVisibility::none) {
      if (a.softcap > 0.0f) soft_cap_scores<kBands, kKeys>(scores, a.scale, a.softcap);
      if (visible == TileVisibility::some) mask_scores<kBands, kKeys>(scores, ranges, row, tile);
      update_softmax<kValueWidth, kBands, kKeys>(scores, softmax, values, scale);
      add_weighted_values<T, kValueWidth, kBands, kKeys>(values, scores, v_lane);
    }
    tile = next;
  }

  if (a.row_stats.lse != nullptr && block.slice == 0)
    store_row_stats(a, softmax, block.head, block.query + row, block.queries - row, scale);
  store_output<T, Shape, kVectors>(q_warp, a, block, row, softmax, values);
}

template <typename T, int kWidth>
void launch_attention(const AttentionArguments& a, cudaStream_t stream) {
  using Shape = AttentionTileShape<kWidth>;
  const auto whole = [](const void* data, std::int64_t stride) {
    return is_16_byte_aligned(data) && stride % 8 == 0;
  };
  const bool vectors = whole(a.q, a.row_stride) && whole(a.k, a.k_stride) &&
                       whole(a.v, a.v_stride) && whole(a.z, a.z_stride) && a.d_head % 8 == 0 &&
                       a.d_value % 8 == 0;
  launch_attention_blocks<Shape>(
      vectors ? attention_16bit_kernel<T, Shape, true> : attention_16bit_kernel<T, Shape, false>,
      Shape::kSharedBytes, a, stream);
}

template <typename T>
void compute_attention_16bit(const AttentionArguments& a, cudaStream_t stream) {
  dispatch_width<16, 32, 64, 96, 128, 256, 512>(
      std::max(a.d_head, a.d_value), [&](auto width) { launch_attention<T, width>(a, stream); });
}

}  // namespace qkscope::cuda
