// Work distribution of the kernels that scan attention scores: each block processes a tile of query
// rows of one head, loops over the key tiles, and calls a statistics pass (template parameter Pass)
// with the scores of each tile in registers.
//
// A warp holds kBands bands of 16 rows. In the 16 x 8 fragments of a band, a lane holds rows g and
// g + 8 (g = lane / 4; "half" 0 and 1) and columns 2t, 2t + 1 (t = lane % 4).
#pragma once

#include <cstdint>

#include "engine/device/cuda/attention/attention_16bit.cuh"
#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/statistics/statistics_scores.h"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {

__device__ inline int bit_width(int x) {
  return 32 - __clz(x);
}

// Shape of a score tile: kWarps warps with kBands bands of query rows each. T is float32, or a
// 16-bit type for the tensor cores.
template <typename T, int kHeadWidth, int kBlockWarps, int kWarpBands>
struct ScoreTileShape {
  static constexpr int kWidth = kHeadWidth;  // d_head, padded
  static constexpr int kWarps = kBlockWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBands = kWarpBands;
  static constexpr int kWarpRows = kBands * 16;
  static constexpr int kRows = kWarps * kWarpRows;
  static constexpr int kKeys = sizeof(T) == 2 && kWidth <= 128 ? 64 : 32;
  static constexpr int kRowBytes = sizeof(T) == 2 ? kPitch<kWidth> : (kWidth + 4) * 4;
};
template <typename T, int kWidth>
using ScoreShape = ScoreTileShape<T, kWidth, 4, sizeof(T) == 2 && kWidth <= 128 ? 2 : 1>;

template <typename T>
struct GlobalHeadRows {
  const T* data;  // row 0
  std::int64_t stride;
  int d_head;
  bool vectors;  // every row is 16-byte aligned and a multiple of 16 bytes long
};

template <typename T>
__device__ GlobalHeadRows<T> global_head_rows(const ScoreArguments& a, const void* data, int head) {
  const auto d_head = static_cast<int>(a.d_head);
  return {static_cast<const T*>(data) + head * d_head, a.row_stride, d_head, a.vectors};
}

// Loads rows into shared memory: tile row r is source row at(r); rows >= `count` become zero.
template <typename T, typename Shape, int kRows, typename At>
__device__ void load_tile(char* tile, const GlobalHeadRows<T>& source, int count, At at) {
  constexpr int kElements = 16 / sizeof(T), kChunks = Shape::kWidth / kElements;
  for (int item = threadIdx.x; item < kRows * kChunks; item += Shape::kThreads) {
    const int row = item / kChunks, column = item % kChunks * kElements;
    const bool valid = row < count && column < source.d_head;
    const T* from = valid ? source.data + at(row) * source.stride + column : source.data;
    char* to = tile + row * Shape::kRowBytes + column * static_cast<int>(sizeof(T));
    if (source.vectors) {
      copy_async(shared_address(to), from, valid);
    } else {
#pragma unroll
      for (int i = 0; i < kElements; ++i)
        reinterpret_cast<T*>(to)[i] =
            valid && column + i < source.d_head ? from[i] : from_float<T>(0.0f);
    }
  }
}

template <typename Shape>
using ScoreFragments = Fragments<Shape::kBands, Shape::kKeys>;

// The warp's rows of q, which are multiplied with each key tile in turn. For 16-bit types and warps
// of one band (16 rows), they are held in registers, which frees their shared memory for keys.
template <typename T, typename Shape>
class WarpQueries {
 public:
  static constexpr bool kHeld = sizeof(T) == 2 && Shape::kBands == 1;

  // `rows`: query rows in shared memory, which may be overwritten after the next barrier if the
  // queries are held in registers.
  __device__ explicit WarpQueries(const char* rows) : rows_(rows) {
    if constexpr (kHeld) {
      const auto q = shared_address(rows) + ldmatrix_lane_offset<Shape::kWidth>();
#pragma unroll
      for (int step = 0; step < Shape::kWidth / 16; ++step) ldmatrix_x4(held_[step], q + step * 32);
    }
  }

  __device__ __forceinline__ void multiply_by_keys(ScoreFragments<Shape>& scores,
                                                   const char* keys) const {
    if constexpr (sizeof(T) == 2) {
      const auto k = shared_address(keys) + ldmatrix_key_lane_offset<Shape::kWidth>();
      if constexpr (kHeld)
        multiply_queries_by_keys<T, Shape::kWidth, 1, Shape::kKeys>(
            scores,
            [&](int step, std::uint32_t(&a)[1][4]) {
#pragma unroll
              for (int i = 0; i < 4; ++i) a[0][i] = held_[step][i];
            },
            k);
      else
        multiply_queries_by_keys<T, Shape::kWidth, Shape::kBands, Shape::kKeys>(
            scores, shared_address(rows_) + ldmatrix_lane_offset<Shape::kWidth>(), k);
    } else {
      multiply_by_keys_float32(scores, keys);
    }
  }

 private:
  __device__ void multiply_by_keys_float32(ScoreFragments<Shape>& scores, const char* keys) const {
    const int lane = threadIdx.x % 32;
    const auto at = [](const char* tile, int row) {
      return reinterpret_cast<const float*>(tile + row * Shape::kRowBytes);
    };
#pragma unroll 1
    for (int n = 0; n < Shape::kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* one = at(rows_, lane / 4 + i / 2 * 8);
        const float* other = at(keys, n * 8 + lane % 4 * 2 + i % 2);
        float sum = 0;
#pragma unroll 4
        for (int c = 0; c < Shape::kWidth; ++c) sum = fmaf(one[c], other[c], sum);
        scores[0][n][i] = sum;
      }
  }

  const char* rows_;
  std::uint32_t held_[kHeld ? Shape::kWidth / 16 : 1][4];
};

template <typename Shape>
__device__ __forceinline__ void apply_score_soft_cap(ScoreFragments<Shape>& scores,
                                                     const ScoreArguments& a) {
  if (a.softcap > 0.0f) soft_cap_scores<Shape::kBands, Shape::kKeys>(scores, a.scale, a.softcap);
}

// Query rows of a thread block, as positions in their document.
struct ScoreThreadBlock {
  DocumentRowTile tile;
  int head;
  int row;     // position of the warp's first row
  int end;     // one past the last row of the block
  int window;  // visible keys of a query; larger than any document for full attention

  __device__ std::int64_t batch_row(int position) const { return tile.begin + position; }
  __device__ std::int64_t output_row(int position) const { return tile.output_row + position; }
};

template <typename Shape>
__device__ __forceinline__ ScoreThreadBlock this_score_block(const ScoreArguments& a) {
  const auto heads = static_cast<int>(a.tile_heads);
  const auto tile = a.tiles[blockIdx.x / heads];
  return {.tile = tile,
          .head = static_cast<int>(a.first_head) + tile.head + static_cast<int>(blockIdx.x) % heads,
          .row = tile.first + static_cast<int>(threadIdx.x) / 32 * Shape::kWarpRows,
          .end = min(tile.first + Shape::kRows, tile.length),
          .window = a.window > 0 ? static_cast<int>(a.window) : 0x7fffffff};
}

// Calls use(band, half, position) for this lane's two rows per band, even past the document's end.
template <typename Shape, typename Use>
__device__ __forceinline__ void for_each_block_row(const ScoreThreadBlock& block, Use use) {
  for_each_lane_row<Shape::kBands>(
      [&](int band, int half, int row) { use(band, half, block.row + row); });
}

// Returns the column, within a key tile, of element (n, i) of this lane's score fragment.
__device__ __forceinline__ int fragment_key_column(int n, int i) {
  return n * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i;
}

// Returns this lane's part of the attention mass of one query on the tile's columns [0, last].
template <typename Shape>
__device__ __forceinline__ float mass_up_to_column(const ScoreFragments<Shape>& p, int band,
                                                   int half, int last) {
  const int own = last - static_cast<int>(threadIdx.x) % 4 * 2;
  float sum = 0;
  for_each_lane_column<Shape::kKeys>([&](int n, int i) {
    if (n * 8 + i <= own) sum += p[band][n][2 * half + i];
  });
  return sum;
}

// Log-sum-exp of rows beyond the end of a document: finite, but so large that all weights are 0.
constexpr float kBeyond = 1e4f;

// Base-2 log-sum-exp of each row of a lane, used to convert scores to attention weights.
template <typename Shape>
struct SoftmaxNormalizer {
  float lse[Shape::kBands][2];
  float scale;

  __device__ SoftmaxNormalizer(const ScoreArguments& a, const ScoreThreadBlock& block)
      : scale(a.scale * kLog2E) {
    for_each_block_row<Shape>(block, [&](int band, int half, int position) {
      lse[band][half] = position < block.tile.length
                            ? a.row_stats.lse[block.batch_row(position) * a.n_heads + block.head]
                            : kBeyond;
    });
  }
  // Returns log2 of the attention weight.
  __device__ float log2_weight(float score, int band, int half) const {
    return fmaf(score, scale, -lse[band][half]);
  }
};

// Shared memory of queries and two key tiles; the tiles overlap the queries if the queries are held
// in registers.
template <typename T, typename Shape>
struct ScoreTileLayout {
  static constexpr bool kShared = WarpQueries<T, Shape>::kHeld;
  static constexpr int kKeyBytes = Shape::kKeys * Shape::kRowBytes;
  static constexpr int kQueryBytes = Shape::kRows * Shape::kRowBytes;
  static constexpr int kKeys = kShared ? 0 : kQueryBytes;  // offset of the key tiles
  static constexpr int kBytes = kKeys + 2 * kKeyBytes;
  static_assert(!kShared || kQueryBytes <= 2 * kKeyBytes);
};

template <typename T, typename Shape, typename Pass>
__global__ void __launch_bounds__(Shape::kThreads, Pass::kBlocks)
    score_kernel(const ScoreArguments a, const typename Pass::Options options) {
  extern __shared__ __align__(16) char shared[];
  using Layout = ScoreTileLayout<T, Shape>;
  static_assert(Layout::kBytes % alignof(typename Pass::SharedStorage) == 0);
  char* const k_tiles = shared + Layout::kKeys;
  auto& memory = *reinterpret_cast<typename Pass::SharedStorage*>(shared + Layout::kBytes);

  const auto block = this_score_block<Shape>(a);
  const auto& tile = block.tile;
  const int kv_head = block.head / static_cast<int>(a.n_heads / a.n_kv_heads);
  const auto q = global_head_rows<T>(a, a.q, block.head), k = global_head_rows<T>(a, a.k, kv_head);
  const auto load_keys = [&](int stage, int key) {
    load_tile<T, Shape, Shape::kKeys>(k_tiles + stage * Layout::kKeyBytes, k, block.end - key,
                                      [&](int row) { return block.batch_row(key + row); });
  };
  load_tile<T, Shape, Shape::kRows>(shared, q, block.end - tile.first,
                                    [&](int row) { return block.batch_row(tile.first + row); });
  if constexpr (Layout::kShared) {
    wait_for_copies();
    __syncthreads();
  }
  const WarpQueries<T, Shape> queries(shared + (block.row - tile.first) * Shape::kRowBytes);
  if constexpr (Layout::kShared) __syncthreads();

  Pass pass(a, options, block, memory);
  int key = pass.first_key();
  int stage = 0;
  load_keys(stage, key);
  while (key < block.end) {
    const int next = pass.first_key_of_next_tile(key);
    wait_for_copies();
    __syncthreads();  // keys have arrived, and every warp is done with the previous ones
    if (next < block.end) load_keys(1 - stage, next);
    pass.begin_tile();
    if (key < block.row + Shape::kWarpRows) {  // else the whole tile is masked for the warp
      ScoreFragments<Shape> scores;
      queries.multiply_by_keys(scores, k_tiles + stage * Layout::kKeyBytes);
      apply_score_soft_cap<Shape>(scores, a);
      pass.add_tile(scores, key);
    } else {
      pass.skip_tile(key);
    }
    key = next;
    stage = 1 - stage;
  }
  pass.store_statistics();
}

template <typename T, typename Shape, typename Pass>
constexpr auto kScoreBytes = static_cast<int>(ScoreTileLayout<T, Shape>::kBytes +
                                              sizeof(typename Pass::SharedStorage));

// Launches Pass over the tiles of `a`, which must have Shape::kRows rows each.
template <typename T, typename Shape, typename Pass>
void launch_score_pass(const ScoreArguments& a, const typename Pass::Options& options,
                       cudaStream_t stream) {
  launch_with_shared_memory("statistics of scores", score_kernel<T, Shape, Pass>,
                            a.tile_count * a.tile_heads, Shape::kThreads,
                            kScoreBytes<T, Shape, Pass>, stream, a, options);
}

// Dispatches on the type and the head size, padded to 64, 128 or 256.
template <template <typename, int> typename Shape, template <typename, typename> typename Pass,
          typename Options>
void dispatch_score_pass(const ScoreArguments& a, const Options& options, cudaStream_t stream) {
  if (a.tile_count == 0) return;
  dispatch_element_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    dispatch_width<64, 128, 256>(a.d_head, [&](auto width) {
      using ThisShape = Shape<T, width>;
      launch_score_pass<T, ThisShape, Pass<T, ThisShape>>(a, options, stream);
    });
  });
}

}  // namespace qkscope::cuda
