// Flash attention in float32 without tensor cores, whose TF32 mode keeps only 10 mantissa bits.
// Each block processes a tile of queries of one head and loops over the keys that they attend to.
#include <algorithm>
#include <cmath>

#include "engine/device/cuda/attention/attention_block.cuh"

namespace qkscope::cuda {
namespace {

// Thread layout: 16 groups of 8 adjacent lanes. Group g handles queries g, g + 16, ... Lane l
// handles keys l, l + 8, ... of a tile and columns 4l to 4l + 3, 4l + 32 to 4l + 35, ... of v.
template <int kHeadWidth>
struct Float32TileShape {
  static constexpr int kWidth = kHeadWidth;  // d_head or d_value, padded
  static constexpr int kThreads = 128;
  static constexpr int kGroups = 16, kLanes = 8;
  static constexpr int kQueries = kWidth <= 128 ? 4 : kWidth <= 256 ? 2 : 1;  // per group
  static constexpr int kRows = kGroups * kQueries;                            // of a block
  static constexpr int kSlices = 1;  // a block computes all columns of v
  static constexpr int kKeys = kWidth <= 256 ? 32 : 16;
  static constexpr int kLaneKeys = kKeys / kLanes;
  static constexpr int kLaneColumns = kWidth / (4 * kLanes);  // in fours
  static constexpr int kPitch = kWidth + 4;       // floats; eight rows lie in different banks
  static constexpr int kWeightPitch = kKeys + 8;  // floats; 4 rows of 8 weights: different banks
};

template <typename Shape>
struct Float32Tiles {
  float q[Shape::kRows][Shape::kPitch];
  float keys[Shape::kKeys][Shape::kPitch];  // k, then v of the tile
  float weights[Shape::kRows][Shape::kWeightPitch];
  KeyRanges<Shape::kRows> ranges;
};

template <typename Shape>
using Scores = float[Shape::kQueries][Shape::kLaneKeys];
template <typename Shape>
using Values = Pack<float, 4>[Shape::kQueries][Shape::kLaneColumns];

// Loads the first `count` rows at `source`; other rows and columns past `width` become zero.
template <typename Shape, int kRows>
__device__ void load_tile_rows(float (&tile)[kRows][Shape::kPitch], const float* source,
                               std::int64_t stride, int count, int width) {
  for (int item = threadIdx.x; item < kRows * Shape::kWidth; item += Shape::kThreads) {
    const int row = item / Shape::kWidth, column = item % Shape::kWidth;
    tile[row][column] = row < count && column < width ? source[row * stride + column] : 0.0f;
  }
}

__device__ Pack<float, 4> load_four_floats(const float* data) {
  return *reinterpret_cast<const Pack<float, 4>*>(data);
}

template <typename Shape>
__device__ void multiply_queries_by_keys(Scores<Shape>& scores, const Float32Tiles<Shape>& memory,
                                         int group, int lane) {
  for (auto& row : scores)
    for (auto& score : row) score = 0.0f;
#pragma unroll 4
  for (int column = 0; column < Shape::kWidth; column += 4) {
    Pack<float, 4> k[Shape::kLaneKeys];
#pragma unroll
    for (int j = 0; j < Shape::kLaneKeys; ++j)
      k[j] = load_four_floats(&memory.keys[lane + j * Shape::kLanes][column]);
#pragma unroll
    for (int i = 0; i < Shape::kQueries; ++i) {
      const auto q = load_four_floats(&memory.q[group + i * Shape::kGroups][column]);
#pragma unroll
      for (int j = 0; j < Shape::kLaneKeys; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) scores[i][j] = fmaf(q.values[c], k[j].values[c], scores[i][j]);
    }
  }
}

// Online softmax of one query: replaces the scores of a tile by weights 2^(score - maximum) and
// rescales the previous sum and values to the new maximum.
template <typename Shape>
struct QuerySoftmaxState {
  float maximum = -INFINITY;
  float sum = 0.0f;  // this lane's share

  __device__ void update(float (&scores)[Shape::kLaneKeys],
                         Pack<float, 4> (&columns)[Shape::kLaneColumns]) {
    const float before = maximum;
    for (const float score : scores) maximum = fmaxf(maximum, score);
    for (int distance = 1; distance < Shape::kLanes; distance *= 2)
      maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, distance));
    // A query without any visible key so far has maximum -infinity; -infinity minus itself is NaN.
    const float shift = maximum == -INFINITY ? 0.0f : maximum;
    const float factor = exp2f(before - shift);
    sum *= factor;
    for (auto& score : scores) {
      score = exp2f(score - shift);
      sum += score;
    }
    for (auto& four : columns)
      for (auto& value : four.values) value *= factor;
  }
};

// Soft cap: softcap tanh(scale score / softcap) / scale; the caller multiplies by `scale` later.
template <typename Shape>
__device__ void soft_cap_scores(float (&scores)[Shape::kLaneKeys], float scale, float softcap) {
#pragma unroll
  for (int j = 0; j < Shape::kLaneKeys; ++j)
    scores[j] = softcap / scale * tanhf(scores[j] * scale / softcap);
}

// Scales and masks the scores of one query.
template <typename Shape>
__device__ void scale_and_mask_scores(float (&scores)[Shape::kLaneKeys],
                                      const KeyRanges<Shape::kRows>& ranges, int query, int lane,
                                      KeyTile tile, float scale) {
#pragma unroll
  for (int j = 0; j < Shape::kLaneKeys; ++j) {
    const auto key = tile.begin + lane + j * Shape::kLanes;
    const bool seen = key >= ranges.first[query] && key <= ranges.last[query] && key < tile.end;
    scores[j] = seen ? scores[j] * scale : -INFINITY;
  }
}

template <typename Shape>
__device__ void add_weighted_values(Values<Shape>& values, const Float32Tiles<Shape>& memory,
                                    int group, int lane) {
#pragma unroll 4
  for (int key = 0; key < Shape::kKeys; ++key) {
    float weight[Shape::kQueries];
#pragma unroll
    for (int i = 0; i < Shape::kQueries; ++i)
      weight[i] = memory.weights[group + i * Shape::kGroups][key];
#pragma unroll
    for (int c = 0; c < Shape::kLaneColumns; ++c) {
      const auto v = load_four_floats(&memory.keys[key][4 * (lane + c * Shape::kLanes)]);
#pragma unroll
      for (int i = 0; i < Shape::kQueries; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          values[i][c].values[j] = fmaf(weight[i], v.values[j], values[i][c].values[j]);
    }
  }
}

// Writes the weighted values of one query, divided by the sum of its weights, to its row of z.
template <typename Shape>
__device__ void store_output_row(float* z, const Pack<float, 4> (&columns)[Shape::kLaneColumns],
                                 float sum, int lane, int d_value) {
  for (int c = 0; c < Shape::kLaneColumns; ++c)
    for (int i = 0; i < 4; ++i) {
      const int column = 4 * (lane + c * Shape::kLanes) + i;
      if (column < d_value) z[column] = columns[c].values[i] / sum;
    }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 3)
    attention_f32_kernel(const AttentionArguments a, float scale) {
  extern __shared__ __align__(16) char shared[];
  auto& memory = *reinterpret_cast<Float32Tiles<Shape>*>(shared);
  const auto& ranges = memory.ranges;
  const auto block = this_attention_block<Shape::kRows>(a);
  const auto d_head = static_cast<int>(a.d_head), d_value = static_cast<int>(a.d_value);
  const auto* q = static_cast<const float*>(a.q) + block.query * a.row_stride + block.head * d_head;
  const auto* k = static_cast<const float*>(a.k) + block.kv_head * d_head;
  const auto* v = static_cast<const float*>(a.v) + block.kv_head * d_value;
  load_tile_rows<Shape>(memory.q, q, a.row_stride, block.queries, d_head);
  load_key_ranges(memory.ranges, a, block.query);

  const int group = threadIdx.x / Shape::kLanes, lane = threadIdx.x % Shape::kLanes;
  Values<Shape> values = {};
  QuerySoftmaxState<Shape> running[Shape::kQueries];
  const KeyTileIterator<Shape::kRows, Shape::kKeys> key_tiles(ranges);
  for (auto tile = key_tiles.next(0); tile.is_valid(); tile = key_tiles.next(tile.end)) {
    const auto count = tile.end - tile.begin;
    Scores<Shape> scores;
    __syncthreads();  // every warp is done with the previous v
    load_tile_rows<Shape>(memory.keys, k + tile.begin * a.k_stride, a.k_stride, count, d_head);
    __syncthreads();
    multiply_queries_by_keys<Shape>(scores, memory, group, lane);
    __syncthreads();  // every warp is done with k
    load_tile_rows<Shape>(memory.keys, v + tile.begin * a.v_stride, a.v_stride, count, d_value);
#pragma unroll
    for (int i = 0; i < Shape::kQueries; ++i) {
      const int query = group + i * Shape::kGroups;
      if (a.softcap > 0.0f) soft_cap_scores<Shape>(scores[i], a.scale, a.softcap);
      scale_and_mask_scores<Shape>(scores[i], ranges, query, lane, tile, scale);
      running[i].update(scores[i], values[i]);
#pragma unroll
      for (int j = 0; j < Shape::kLaneKeys; ++j)
        memory.weights[query][lane + j * Shape::kLanes] = scores[i][j];
    }
    __syncthreads();
    add_weighted_values<Shape>(values, memory, group, lane);
  }

#pragma unroll
  for (int i = 0; i < Shape::kQueries; ++i) {
    float sum = running[i].sum;
    for (int distance = 1; distance < Shape::kLanes; distance *= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    const int query = group + i * Shape::kGroups;
    if (query >= block.queries) continue;
    auto* z = static_cast<float*>(a.z) + (block.query + query) * a.z_stride + block.head * d_value;
    store_output_row<Shape>(z, values[i], sum, lane, d_value);
    if (a.row_stats.lse == nullptr || lane != 0) continue;
    const auto at = (block.query + query) * a.n_heads + block.head;
    a.row_stats.lse[at] = running[i].maximum + log2f(sum);
    a.row_stats.largest[at] = running[i].maximum / scale;
  }
}

}  // namespace

void compute_attention_f32(const AttentionArguments& a, cudaStream_t stream) {
  dispatch_width<32, 64, 128, 256, 512>(std::max(a.d_head, a.d_value), [&](auto width) {
    using Shape = Float32TileShape<width>;
    launch_attention_blocks<Shape>(attention_f32_kernel<Shape>, sizeof(Float32Tiles<Shape>), a,
                                   stream);
  });
}

}  // namespace qkscope::cuda
