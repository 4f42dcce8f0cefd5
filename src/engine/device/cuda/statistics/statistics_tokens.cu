// Near-key statistics of repeated tokens: attention to earlier occurrences of the query's token
// (dup) and to the keys that follow them (ind). Rows are listed by token; each block processes 64
// entries of the list and scans from the first entry of the first token. Entries of other tokens
// are masked.
#include "engine/device/cuda/statistics/statistics_scores.cuh"

namespace qkscope::cuda {
namespace {

template <typename T, int kWidth>
using TokenShape = ScoreTileShape<T, kWidth, 4, 1>;

struct TokenList {
  const RepeatedTokenRow* rows;
  const RepeatedTokenTile* tiles;
};

// One of the two queries of a lane and its sums of attention weights.
struct TokenQuery {
  int entry, row, block;
  float lse;
  float dup = 0, dup_first = 0, ind = 0, ind_self = 0;
};

// Loads the two queries of this lane; `warp_entry` is the warp's first entry in the token list.
__device__ __forceinline__ void load_queries(TokenQuery (&queries)[2], const ScoreArguments& a,
                                             const TokenList& list, const RepeatedTokenTile& tile,
                                             int warp_entry, int head) {
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

// A tile of keys: entries [entry, entry + count) of the token list, and the row of each entry.
struct ListedKeys {
  int entry, count;
  const std::int32_t* rows;
};

// Adds the attention weights on earlier equal tokens (kShift = 0: dup) or on the keys right after
// them (kShift = 1: ind).
template <int kShift, typename Shape>
__device__ __forceinline__ void add_weights(TokenQuery& query, int half, const ListedKeys& keys,
                                            const ScoreFragments<Shape>& scores,
                                            const ScoreArguments& a, int first_row) {
  const int window = a.window > 0 ? static_cast<int>(a.window) : 0x7fffffff;
  for_each_lane_column<Shape::kKeys>([&](int n, int i) {
    const int column = fragment_key_column(n, i), key_entry = keys.entry + column;
    if (key_entry < query.block || key_entry >= query.entry || column >= keys.count) return;
    const int key = keys.rows[column] + kShift;
    if (query.row - key >= window) return;
    const float p = exp2_fast(fmaf(scores[0][n][2 * half + i], a.scale * kLog2E, -query.lse));
    (kShift == 0 ? query.dup : query.ind) += p;
    if (key == (kShift == 0 ? first_row : query.row))
      (kShift == 0 ? query.dup_first : query.ind_self) += p;
  });
}

__device__ __forceinline__ void store_sums(const TokenQuery (&queries)[2], const ScoreArguments& a,
                                           int last, int head) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto& query = queries[half];
    const float values[] = {quad_sum(query.dup), quad_sum(query.dup_first), quad_sum(query.ind),
                            quad_sum(query.ind_self)};
    if (threadIdx.x % 4 != 0 || query.entry >= last) continue;
    for (int i = 0; i < 4; ++i)
      a.value(near_column(NearKeyColumn::dup) + i, head, query.row) = values[i];
  }
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, sizeof(T) == 2 ? 3 : 1)
    tokens_kernel(const ScoreArguments a, const TokenList list) {
  extern __shared__ __align__(16) char shared[];
  using Tiles = ScoreTiles<T, Shape>;
  char* const same = shared + Tiles::kKeys;     // keys of the listed rows
  char* const after = same + Tiles::kKeyBytes;  // keys of the rows that follow them
  auto* const key_rows = reinterpret_cast<std::int32_t*>(shared + Tiles::kBytes);

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

  const int warp_entry = tile.first + warp_row;
  TokenQuery queries[2];
  load_queries(queries, a, list, tile, warp_entry, head);

  for (int entry = list.rows[tile.first].block; entry < tile.last; entry += Shape::kKeys) {
    const int count = min(tile.last - entry, Shape::kKeys);
    __syncthreads();  // every warp is done with the previous keys
    for (int i = threadIdx.x; i < count; i += Shape::kThreads)
      key_rows[i] = list.rows[entry + i].row;
    load_tile<T, Shape, Shape::kKeys>(
        same, k, count, [&](int row) -> std::int64_t { return list.rows[entry + row].row; });
    load_tile<T, Shape, Shape::kKeys>(after, k, count, [&](int row) -> std::int64_t {
      return min(list.rows[entry + row].row + 1, static_cast<int>(a.rows) - 1);
    });
    wait_for_copies();
    __syncthreads();
    if (entry >= warp_entry + Shape::kWarpRows) continue;  // all of its entries come later
    const ListedKeys keys{entry, count, key_rows};
    const auto add = [&](auto shift, char* key_tile) {
      ScoreFragments<Shape> scores;
      warp_queries.multiply(scores, key_tile);
      apply_score_soft_cap<Shape>(scores, a);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_weights<decltype(shift)::value, Shape>(queries[half], half, keys, scores, a,
                                                   tile.begin);
    };
    add(std::integral_constant<int, 0>(), same);
    add(std::integral_constant<int, 1>(), after);
  }
  store_sums(queries, a, tile.last, head);
}

}  // namespace

void compute_equal_token_statistics(const ScoreArguments& a, const RepeatedTokenRow* rows,
                                    const RepeatedTokenTile* tiles, std::int64_t tile_count,
                                    cudaStream_t stream) {
  if (tile_count == 0) return;
  const TokenList list{rows, tiles};
  dispatch_element_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    dispatch_width<64, 128, 256>(a.d_head, [&](auto width) {
      using Shape = TokenShape<T, width>;
      constexpr int kBytes = ScoreTiles<T, Shape>::kBytes + Shape::kKeys * 4;
      launch_with_shared_memory("attention to equal tokens", tokens_kernel<T, Shape>,
                                tile_count * a.heads, Shape::kThreads, kBytes, stream, a, list);
    });
  });
}

}  // namespace qkscope::cuda
