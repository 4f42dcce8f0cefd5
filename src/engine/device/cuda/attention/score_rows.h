// Attention scores and patterns of selected queries. attention.cpp has the checks and the transfer
// to the host, score_rows.cu the kernels.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"

namespace qkscope {
struct RowScores;
}

namespace qkscope::cuda {

class ActiveRows;

// q and k of one layer on the GPU.
struct ScoreSource {
  const void* q = nullptr;      // (rows, n_heads, d_head)
  const void* k = nullptr;      // (rows, n_kv_heads, d_head)
  std::int64_t row_stride = 0;  // elements from one row of q to the next
  // Elements from one row of k to the next; differs from row_stride for cached keys.
  std::int64_t k_stride = 0;
  std::int64_t n_heads = 0, n_kv_heads = 0, d_head = 0;
  float scale = 1.0f;            // multiplies q.k
  float softcap = 0.0f;          // soft cap: cap tanh(score / cap); 0: none
  std::int64_t window = 0;       // visible keys of a query, itself included; 0: all before it
  DType dtype = DType::bf16;     // type of q and k: bf16, f16 or f32
  const float* sinks = nullptr;  // (n_heads) extra score in each softmax, or null
};

// All pointers are device pointers.
struct ScoreRowsArguments : ScoreSource {
  const std::int32_t* rows = nullptr;            // (count) selected rows of q
  const std::int32_t* first_key = nullptr;       // (count) first visible row of k
  const std::int32_t* last_key = nullptr;        // (count) last visible row of k, >= first_key
  const std::int32_t* sequence_begin = nullptr;  // (count) row of k that is column 0
  std::int64_t count = 0;
  std::int64_t keys = 0;    // columns; last_key - sequence_begin < keys
  float* scores = nullptr;  // (n_heads, count, keys) scale q.k, -infinity where masked
  // Shape (n_heads, count, keys), or null. Softmax of the scores, 0 where masked.
  float* pattern = nullptr;
};

// Products and sums are float32 for every type of q and k, in an order that depends only on d_head
// and the column, so the results of a row are bit-identical wherever it is in the batch.
void score_rows(const ScoreRowsArguments& arguments, cudaStream_t stream);

// Kernels. Arguments are already checked; count and keys > 0.
void launch_scores(const ScoreRowsArguments& arguments, cudaStream_t stream);
void launch_patterns(const ScoreRowsArguments& arguments, cudaStream_t stream);

// Copies scores and patterns of out.rows to the host in blocks of rows; the full (queries, keys)
// square is never on the GPU.
void copy_scores_to_host(const RowScores& out, const ScoreSource& source, ActiveRows& rows,
                         cudaStream_t stream);

}  // namespace qkscope::cuda
