// Attention statistics on the GPU: of the keys near each query (group B) and of all keys (group C).
// Kernels scan the scores, given the log-sum-exp of each row, and store one value per statistics
// column, head and query; another kernel sums the values over the queries of a position bucket.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/convert.h"
#include "engine/device/cuda/attention/attention.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope::cuda {

// A tile of query rows of one document, from batch row begin + first on, for one thread block.
struct DocumentRowTile {
  std::int32_t begin;       // row of the batch where the document begins
  std::int32_t length;      // rows of the document
  std::int32_t first;       // position of the tile's first row
  std::int32_t output_row;  // position p is in row output_row + p of ScoreArguments::statistics
  std::int32_t head;        // head of the tile; 0 if all heads of the launch process the tile
};

// All pointers are device pointers. Rows of k have the stride of q.
struct ScoreArguments : QueriesAndKeys {
  std::int64_t rows = 0;
  std::int64_t first_head = 0, heads = 0;  // heads of this launch
  bool vectors = false;  // every row of a head is 16-byte aligned and a multiple of 16 bytes long
  SoftmaxRowStats row_stats = {};               // (rows, n_heads)
  const DocumentRowTile* tiles = nullptr;       // (tile_count), tiles with many keys first
  std::int64_t tile_count = 0, tile_heads = 0;  // tile_heads: heads that process each tile, or 1
  float* statistics = nullptr;                 // (columns from first_column on, heads, output_rows)
  std::int64_t first_column = 0, columns = 0;  // columns of group C, or of B and sink_above_half
  std::int64_t output_rows = 0;  // rows of the batch; with sampling: sampled queries of a head
  AttentionColumnLayout layout = {};

  constexpr float& statistic(std::int64_t column, std::int64_t head, std::int64_t row) const {
    return statistics[((column - first_column) * heads + head - first_head) * output_rows + row];
  }
};

constexpr std::int64_t column_index(NearKeyColumn column) {
  return AttentionColumnLayout::offset(column);
}

// Returns the number of query rows per tile for all passes except the all-keys pass.
std::int64_t score_tile_rows(DType dtype, std::int64_t d_head);

// Computes the log-sum-exp and largest score of every row, for attention kernels that do not.
void compute_row_stats(const ScoreArguments& arguments, cudaStream_t stream);

// Computes the statistics columns sink_0 to sink_3, self, prev, stream and near (distance bands).
void compute_near_key_statistics(const ScoreArguments& arguments, cudaStream_t stream);

// A batch row whose token occurs more than once in its document. Lists of such rows are sorted by
// document, token and position.
struct RepeatedTokenRow {
  std::int32_t row;    // row of the batch
  std::int32_t block;  // list index of the first row with the same token
};
struct RepeatedTokenTile {
  std::int32_t first, last;  // queries: list rows [first, last), at most score_tile_rows()
  std::int32_t begin;        // batch row where the document of the queries starts
};

struct RepeatedTokenList {
  const RepeatedTokenRow* rows;
  const RepeatedTokenTile* tiles;  // tiles with many keys first
  std::int64_t tile_count;
};

// Computes the columns dup, dup_first, ind and ind_self (attention to equal tokens and to their
// successors) of the listed rows; the caller has set the values of all other rows to 0.
void compute_repeated_token_statistics(const ScoreArguments& arguments,
                                       const RepeatedTokenList& list, cudaStream_t stream);

// Thread blocks per launch of the all-keys kernel; bounds the scratch memory for histogram bins.
constexpr std::int64_t kAllKeysLaunchBlocks = 1024;

// Computes the all-key statistics columns, except derived ones, and the attention mass that each
// key receives. Tiles have all_keys_tile_rows() rows.
struct AllKeysArguments {
  std::int64_t* key_sums = nullptr;  // (rows, n_heads) in units of 2^-40; accumulated; or null
  void* bins = nullptr;              // scratch of all_keys_histogram_bytes() bytes
};
std::int64_t all_keys_tile_rows(DType dtype, std::int64_t d_head);
std::int64_t all_keys_histogram_bytes();
void compute_all_key_statistics(const ScoreArguments& arguments, const AllKeysArguments& more,
                                cudaStream_t stream);

struct NearKeyOptions {
  int bands;  // distance bands that cover the window
  int stream_first, stream_last;
  int reach;  // largest distance of a recent key: window or stream_last
};

// Computes near-key and all-key statistics with Hopper's wgmma, for 16-bit types and head sizes 64
// and 128. Returns false and does nothing if arguments are unsupported or the kernel is not built.
bool try_compute_near_key_statistics_on_hopper(const ScoreArguments& arguments,
                                               const NearKeyOptions& options, cudaStream_t stream);
bool try_compute_all_key_statistics_on_hopper(const ScoreArguments& arguments,
                                              const AllKeysArguments& more, cudaStream_t stream);

// Consecutive batch rows of one document and one position bucket.
struct DocumentBucket {
  std::int32_t begin;  // row of the batch
  std::int32_t end;
  std::int32_t position;  // position of row `begin` in its document
  std::int32_t document;
  std::int32_t bucket;
  std::int32_t block;  // index of the document's first block of kSampledQueries queries
};

// A block of kSampledQueries queries of one head; all of its queries are sampled, or none.
struct SampledQueryBlock {
  float weight;             // 0: not sampled
  std::int32_t output_row;  // as in DocumentRowTile
};

struct BucketSumArguments {
  ScoreArguments scores;
  const DocumentBucket* cells = nullptr;
  std::int64_t cell_count = 0;
  double* sum = nullptr;                      // (cells, n_heads, columns)
  double* square = nullptr;                   // (cells, n_heads, columns)
  float* max_logit = nullptr;                 // (cells, n_heads)
  const SampledQueryBlock* blocks = nullptr;  // (heads, block_count); null: all queries
  std::int64_t block_count = 0;               // of all documents of the batch
};
// Sums the statistics columns of `scores` over the rows of each cell (document, bucket), in a fixed
// order. For the near-key columns, also computes max_logit.
void sum_document_buckets(const BucketSumArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
