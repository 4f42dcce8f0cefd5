// Near-key statistics of repeated tokens: attention to earlier occurrences of the query's token
// (dup) and to the keys that follow them (ind). Rows are listed by token; each block scans the list
// from the first token of its queries on. Entries of other tokens are masked.
#include "engine/device/cuda/statistics/statistics_scores.cuh"

namespace qkscope::cuda {
namespace {

template <typename T, int kWidth>
using TokenShape = ScoreTileShape<T, kWidth, sizeof(T) == 2 && kWidth <= 128 ? 8 : 4, 1>;

// One of the two queries of a lane, and its sums of attention weights. Array index 0: keys with the
// query's token (duplicate-token keys, dup); index 1: the keys after them (induction, ind).
struct TokenQuery {
  int entry;
  int first[2];    // first visible list entry of the token; the last is entry - 1
  int special[2];  // entry of dup_first and ind_self, or -1
  float lse;
  float sums[4] = {};  // dup, dup_first, ind, ind_self
};

// Returns the first entry in [begin, end) whose row is at least `row`, or `end`.
__device__ inline int first_entry_from_row(const RepeatedTokenList& list, int begin, int end,
                                           int row) {
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (list.rows[middle].row < row)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

// Loads the two queries of this lane; `warp_entry` is the warp's first entry in the token list.
__device__ __forceinline__ void load_queries(TokenQuery (&queries)[2], const ScoreArguments& a,
                                             const RepeatedTokenList& list,
                                             const RepeatedTokenTile& tile, int warp_entry,
                                             int head) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    auto& query = queries[half];
    query.entry = min(warp_entry + half * 8 + static_cast<int>(threadIdx.x) % 32 / 4, tile.last);
    const int entry = min(query.entry, tile.last - 1);
    const auto [row, block] = list.rows[entry];
    query.lse = a.row_stats.lse[row * a.n_heads + head];
    for (int shift = 0; shift < 2; ++shift)
      query.first[shift] = a.window > 0
                               ? first_entry_from_row(list, block, entry,
                                                      row - static_cast<int>(a.window) + 1 - shift)
                               : block;
    query.special[0] = list.rows[block].row == tile.begin ? block : -1;
    query.special[1] = entry > block && list.rows[entry - 1].row + 1 == row ? entry - 1 : -1;
  }
}

// Adds to `query` the attention weights of keys [key, key + kKeys) of the token list.
template <typename Shape>
__device__ __forceinline__ void add_tile_weights(TokenQuery& query, int half, int key, int shift,
                                                 const ScoreFragments<Shape>& scores, float scale) {
  const auto weight = [&](int n, int i) {
    return exp2_fast(fmaf(scores[0][n][2 * half + i], scale, -query.lse));
  };
  const int begin = query.first[shift] - key, end = query.entry - key;  // columns of the tile
  float& sum = query.sums[2 * shift];
  if (begin <= 0 && end >= Shape::kKeys) {
    for_each_lane_column<Shape::kKeys>([&](int n, int i) { sum += weight(n, i); });
  } else {
    const int own = fragment_key_column(0, 0) - begin;
    const auto count = static_cast<unsigned>(max(end - begin, 0));
    for_each_lane_column<Shape::kKeys>([&](int n, int i) {
      if (static_cast<unsigned>(own + n * 8 + i) < count) sum += weight(n, i);
    });
  }
  const int special = query.special[shift] - key;
  if (special < max(begin, 0) || special >= min(end, Shape::kKeys)) return;
  for_each_lane_column<Shape::kKeys>([&](int n, int i) {
    if (fragment_key_column(n, i) == special) query.sums[2 * shift + 1] += weight(n, i);
  });
}

__device__ __forceinline__ void store_sums(const TokenQuery (&queries)[2], const ScoreArguments& a,
                                           const RepeatedTokenList& list, int last, int head) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float sum = quad_sum(queries[half].sums[i]);
      if (threadIdx.x % 4 == 0 && queries[half].entry < last)
        a.statistic(column_index(NearKeyColumn::dup) + i, head,
                    list.rows[queries[half].entry].row) = sum;
    }
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, sizeof(T) == 2 ? 3 - Shape::kWarps / 8 : 1)
    repeated_tokens_kernel(const ScoreArguments a, const RepeatedTokenList list) {
  extern __shared__ __align__(16) char shared[];
  using Layout = ScoreTileLayout<T, Shape>;
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
  const int warp_block = list.rows[min(warp_entry, tile.last - 1)].block;

  char* const key_tiles = shared + Layout::kKeys;  // tiles: listed rows, rows after them
  const auto load_keys = [&](int entry, int shift) {
    load_tile<T, Shape, Shape::kKeys>(
        key_tiles + shift * Layout::kKeyBytes, k, tile.last - entry, [&](int row) -> std::int64_t {
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
        continue;  // no key is an earlier occurrence of a query's token
      ScoreFragments<Shape> scores;
      warp_queries.multiply_by_keys(scores, key_tiles + shift * Layout::kKeyBytes);
      apply_score_soft_cap<Shape>(scores, a);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_tile_weights<Shape>(queries[half], half, entry, shift, scores, a.scale * kLog2E);
    }
  store_sums(queries, a, list, tile.last, head);
}

}  // namespace

void compute_repeated_token_statistics(const ScoreArguments& a, const RepeatedTokenList& list,
                                       cudaStream_t stream) {
  if (list.tile_count == 0) return;
  dispatch_element_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    dispatch_width<64, 128, 256>(a.d_head, [&](auto width) {
      using Shape = TokenShape<T, width>;
      launch_with_shared_memory("attention to equal tokens", repeated_tokens_kernel<T, Shape>,
                                list.tile_count * a.heads, Shape::kThreads,
                                ScoreTileLayout<T, Shape>::kBytes, stream, a, list);
    });
  });
}

}  // namespace qkscope::cuda
