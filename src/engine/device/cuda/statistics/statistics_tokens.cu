// Near-key statistics of repeated tokens: attention to earlier occurrences of the query's token
// (dup) and to the keys that follow them (ind). Rows are listed by token; each block scans the list
// from the first token of its queries on. Entries of other tokens are masked.
#include "engine/device/cuda/statistics/statistics_scores.cuh"

namespace qkscope::cuda {
namespace {

template <typename T, int kWidth>
using TokenShape = ScoreTileShape<T, kWidth, sizeof(T) == 2 && kWidth <= 128 ? 8 : 4, 1>;

// One of the two queries of a lane and its sums of attention weights.
struct TokenQuery {
  int entry, row, block;
  float lse;
  float sums[4] = {};  // dup, dup_first, ind, ind_self
};

// Loads the two queries of this lane; `warp_entry` is the warp's first entry in the token list.
__device__ __forceinline__ void load_queries(TokenQuery (&queries)[2], const ScoreArguments& a,
                                             const RepeatedTokenList& list,
                                             const RepeatedTokenTile& tile, int warp_entry,
                                             int head) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    auto& query = queries[half];
    query.entry = warp_entry + half * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
    const auto from = list.rows[min(query.entry, tile.last - 1)];
    query.row = from.row;
    query.block = from.block;
    query.lse = a.row_sums.lse[from.row * a.n_heads + head];
  }
}

// A tile of keys: entries [entry, entry + count) of the token list.
struct ListedKeys {
  int entry, count;
  const RepeatedTokenRow* rows;  // (count)
  int shift;                     // 0: keys of these rows (dup), 1: of the rows after them (ind)
};

template <typename Shape>
__device__ __forceinline__ void add_weights(TokenQuery& query, int half, const ListedKeys& keys,
                                            const ScoreFragments<Shape>& scores,
                                            const ScoreArguments& a, int first_row) {
  const int window = a.window > 0 ? static_cast<int>(a.window) : 0x7fffffff;
  float& sum = query.sums[2 * keys.shift];
  const auto weight = [&](int n, int i) {
    return exp2_fast(fmaf(scores[0][n][2 * half + i], a.scale * kLog2E, -query.lse));
  };
  // Most tiles of a frequent token: all keys count, and none is its first or its latest occurrence.
  if (keys.entry > query.block && keys.entry + Shape::kKeys < query.entry &&
      query.row - keys.rows[0].row < window)
    return for_each_lane_column<Shape::kKeys>([&](int n, int i) { sum += weight(n, i); });
  for_each_lane_column<Shape::kKeys>([&](int n, int i) {
    const int column = fragment_key_column(n, i), key_entry = keys.entry + column;
    if (key_entry < query.block || key_entry >= query.entry || column >= keys.count) return;
    const int key = keys.rows[column].row + keys.shift;
    if (query.row - key >= window) return;
    const float p = weight(n, i);
    sum += p;
    if (key == (keys.shift == 0 ? first_row : query.row)) query.sums[2 * keys.shift + 1] += p;
  });
}

__device__ __forceinline__ void store_sums(const TokenQuery (&queries)[2], const ScoreArguments& a,
                                           int last, int head) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float sum = quad_sum(queries[half].sums[i]);
      if (threadIdx.x % 4 == 0 && queries[half].entry < last)
        a.value(near_column(NearKeyColumn::dup) + i, head, queries[half].row) = sum;
    }
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, sizeof(T) == 2 ? 3 - Shape::kWarps / 8 : 1)
    tokens_kernel(const ScoreArguments a, const RepeatedTokenList list) {
  extern __shared__ __align__(16) char shared[];
  using Tiles = ScoreTiles<T, Shape>;
  const auto heads = static_cast<int>(a.heads);
  const auto tile = list.tiles[blockIdx.x / heads];
  const int head = static_cast<int>(a.first_head) + static_cast<int>(blockIdx.x) % heads;
  const int kv_head = head / static_cast<int>(a.n_heads / a.n_kv_heads);
  const auto q = global_head_rows<T>(a, a.q, head), k = global_head_rows<T>(a, a.k, kv_head);
  load_tile<T, Shape, Shape::kRows>(
      shared, q, tile.last - tile.first,
      [&](int row) -> std::int64_t { return list.rows[tile.first + row].row; });
  wait_for_copies();
  __syncthreads();
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * Shape::kWarpRows;
  const WarpQueries<T, Shape> warp_queries(shared + warp_row * Shape::kRowBytes);
  __syncthreads();  // keys may overwrite the queries

  const int warp_entry = tile.first + warp_row;
  TokenQuery queries[2];
  load_queries(queries, a, list, tile, warp_entry, head);
  const int warp_block = __shfl_sync(kAllLanes, queries[0].block, 0);

  char* const key_tiles = shared + Tiles::kKeys;  // keys of listed rows; of the rows after them
  const auto load_keys = [&](int entry, int shift) {
    load_tile<T, Shape, Shape::kKeys>(
        key_tiles + shift * Tiles::kKeyBytes, k, tile.last - entry, [&](int row) -> std::int64_t {
          return min(list.rows[entry + row].row + shift, static_cast<int>(a.rows) - 1);
        });
  };
  int entry = list.rows[tile.first].block;
  load_keys(entry, 0);
  for (; entry < tile.last; entry += Shape::kKeys)
#pragma unroll
    for (int shift = 0; shift < 2; ++shift) {
      wait_for_copies();
      __syncthreads();  // keys have arrived, and every warp is done with the previous ones
      const int next = entry + shift * Shape::kKeys;
      if (next < tile.last) load_keys(next, 1 - shift);
      if (entry >= warp_entry + Shape::kWarpRows || entry + Shape::kKeys <= warp_block)
        continue;  // all keys come later, or belong to earlier tokens
      ScoreFragments<Shape> scores;
      warp_queries.multiply(scores, key_tiles + shift * Tiles::kKeyBytes);
      apply_score_soft_cap<Shape>(scores, a);
      const ListedKeys keys{entry, tile.last - entry, list.rows + entry, shift};
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_weights<Shape>(queries[half], half, keys, scores, a, tile.begin);
    }
  store_sums(queries, a, tile.last, head);
}

}  // namespace

void compute_equal_token_statistics(const ScoreArguments& a, const RepeatedTokenList& list,
                                    cudaStream_t stream) {
  if (list.tile_count == 0) return;
  dispatch_element_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    dispatch_width<64, 128, 256>(a.d_head, [&](auto width) {
      using Shape = TokenShape<T, width>;
      launch_with_shared_memory("attention to equal tokens", tokens_kernel<T, Shape>,
                                list.tile_count * a.heads, Shape::kThreads,
                                ScoreTiles<T, Shape>::kBytes, stream, a, list);
    });
  });
}

}  // namespace qkscope::cuda
