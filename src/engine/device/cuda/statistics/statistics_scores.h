// Near-key and all-key statistics (B and C) on the GPU: passes over scores with a known log-sum-exp
// per row. Each row (query) of each head gets one value per column; another kernel sums them over
// the rows of a bucket.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/convert.h"
#include "engine/device/cuda/attention/attention.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope::cuda {

// A tile of query rows of one document, starting at row begin + first; one thread block each.
struct DocumentRowTile {
  std::int32_t begin;   // row of the batch where the document begins
  std::int32_t length;  // rows of the document
  std::int32_t first;   // position of the tile's first row
  std::int32_t values;  // row of the document's first query in the values of a head
  std::int32_t head;    // head of the tile; 0 if all heads of the launch process the tile
};

// All pointers are device pointers. Rows of k have the stride of q.
struct ScoreArguments : QueriesAndKeys {
  std::int64_t rows = 0;
  std::int64_t first_head = 0, heads = 0;  // heads of this launch
  bool vectors = false;  // every row of a head is 16-byte aligned and a multiple of 16 bytes long
  SoftmaxRowSums row_sums = {};                 // (rows, n_heads)
  const DocumentRowTile* tiles = nullptr;       // tiles of the pass's row count, long ones first
  std::int64_t tile_count = 0, tile_heads = 0;  // tile_heads: heads that process each tile, or 1
  float* values = nullptr;                      // (columns from first_column on, heads, value_rows)
  std::int64_t first_column = 0, columns = 0;   // columns of all keys; or 0, near keys and one more
  std::int64_t value_rows = 0;  // rows of the batch or, of a sample, the sampled queries of a head
  AttentionColumnLayout layout = {};

  constexpr float& value(std::int64_t column, std::int64_t head, std::int64_t row) const {
    return values[((column - first_column) * heads + head - first_head) * value_rows + row];
  }
};

constexpr std::int64_t near_keys_column(NearKeyColumn column) {
  return AttentionColumnLayout::offset(column);
}

// Returns the number of query rows per tile for all passes except the all-keys pass.
std::int64_t score_tile_rows(DType dtype, std::int64_t d_head);

// Computes log-sum-exp and largest score of every row where attention does not provide them.
void compute_row_sums(const ScoreArguments& arguments, cudaStream_t stream);

// Computes the columns sink_0 to sink_3, self, prev, stream and the near bands.
void compute_near_key_statistics(const ScoreArguments& arguments, cudaStream_t stream);

// Rows of tokens that occur more than once in their document, sorted by document, token and
// position.
struct RepeatedTokenRow {
  std::int32_t row;    // row of the batch
  std::int32_t block;  // index of the first entry of its token
};
struct RepeatedTokenTile {
  std::int32_t first, last;  // query entries [first, last), at most score_tile_rows()
  std::int32_t begin;        // batch row where their document starts
};

struct RepeatedTokenList {
  const RepeatedTokenRow* rows;
  const RepeatedTokenTile* tiles;  // long scans first
  std::int64_t tile_count;
};

// Computes the columns dup, dup_first, ind and ind_self (attention to equal tokens) of the listed
// rows; the values of all other rows must already be 0.
void compute_equal_token_statistics(const ScoreArguments& arguments, const RepeatedTokenList& list,
                                    cudaStream_t stream);

// Blocks per launch: several per multiprocessor of a large GPU. Bounds the scratch memory for bins.
constexpr std::int64_t kAllKeysLaunchBlocks = 1024;

// Computes the all-key columns except derived ones, and the attention mass that each key receives.
// Tiles have all_keys_tile_rows() rows.
struct AllKeysArguments {
  std::int64_t* key_sums = nullptr;  // (rows, n_heads) in units of 2^-40; accumulated; or null
  void* bins = nullptr;              // scratch of all_keys_histogram_bytes() bytes
};
std::int64_t all_keys_tile_rows(DType dtype, std::int64_t d_head);
std::int64_t all_keys_histogram_bytes();
void compute_all_key_statistics(const ScoreArguments& arguments, const AllKeysArguments& more,
                                cudaStream_t stream);

struct NearKeyOptions {
  int bands;  // bands of the window
  int stream_first, stream_last;
  int reach;  // the farther of window and stream_last
};

// Computes near-key and all-key statistics with Hopper's wgmma, for 16-bit types and head sizes 64
// and 128. Returns false and does nothing if arguments do not qualify or the kernel is not built.
bool compute_near_key_statistics_on_hopper(const ScoreArguments& arguments,
                                           const NearKeyOptions& options, cudaStream_t stream);
bool compute_all_key_statistics_on_hopper(const ScoreArguments& arguments,
                                          const AllKeysArguments& more, cudaStream_t stream);

// Consecutive rows of one document and bucket.
struct DocumentBucketCell {
  std::int32_t begin;  // row of the batch
  std::int32_t end;
  std::int32_t position;  // position of row `begin` in its document
  std::int32_t document;
  std::int32_t bucket;
  std::int32_t block;  // index of the document's first block of kSampledQueries queries
};

// A block of kSampledQueries queries of one head; all of its queries are sampled, or none.
struct SampledBlock {
  float weight;         // 0: not sampled
  std::int32_t values;  // row of the document's first query in the values of its head
};

struct BucketCellSumArguments {
  ScoreArguments scores;
  const DocumentBucketCell* cells = nullptr;
  std::int64_t cell_count = 0;
  double* sum = nullptr;                 // (cells, n_heads, columns)
  double* square = nullptr;              // (cells, n_heads, columns)
  float* max_logit = nullptr;            // (cells, n_heads)
  const SampledBlock* blocks = nullptr;  // (heads, block_count); null: all queries
  std::int64_t block_count = 0;          // of all documents of the batch
};
// Sums the columns of all keys, or those of near keys and sink_above_half, over the rows of each
// cell (document, bucket), in a fixed order. For near keys, also computes max_logit.
void sum_bucket_cells(const BucketCellSumArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
