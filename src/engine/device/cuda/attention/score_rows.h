// Attention scores and patterns of selected queries: computed on the GPU for observers, on the host
// for edits. score_rows.cpp has the checks and the host part, score_rows.cu the kernels.
#pragma once

#include <cstdint>
#include <span>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "qkscope/forward.h"
#include "qkscope/tensor.h"

namespace qkscope {

struct AttentionInput;
struct AttentionRequest;
struct LayerAttention;
struct RowScores;
namespace rows {
struct RunningSoftmax;
}

namespace cuda {

class PassRows;

// All pointers are device pointers; strides as in AttentionArguments.
struct ScoreRowsArguments {
  const void* q = nullptr;  // (any, n_heads, d_head)
  const void* k = nullptr;  // (any, n_kv_heads, d_head)
  std::int64_t q_stride = 0, k_stride = 0;
  const std::int32_t* rows = nullptr;            // (count) selected rows of q
  const std::int32_t* first_key = nullptr;       // (count) first visible row of k
  const std::int32_t* last_key = nullptr;        // (count) last visible row of k, >= first_key
  const std::int32_t* sequence_begin = nullptr;  // (count) row of k that is column 0
  std::int64_t count = 0;
  std::int64_t keys = 0;  // columns; last_key - sequence_begin < keys
  std::int64_t n_heads = 0, n_kv_heads = 0, d_head = 0;
  float scale = 1.0f;         // multiplies q.k
  float softcap = 0.0f;       // soft cap: cap tanh(score / cap); 0: none
  DType dtype = DType::bf16;  // of q and k: bf16, f16 or f32
  float* scores = nullptr;    // (n_heads, count, keys) scale q.k, -infinity where masked
  float* pattern =
      nullptr;  // (n_heads, count, keys) softmax of the scores, 0 where masked; or null
  const float* sinks = nullptr;  // (n_heads) extra score in each softmax, or null
};

// Products and sums are float32 for every type of q and k, in an order that depends only on d_head
// and the column, so the bits of a row do not depend on its place in the batch.
void score_rows(const ScoreRowsArguments& arguments, cudaStream_t stream);

// Kernels. Arguments are already checked; count and keys > 0.
void launch_scores(const ScoreRowsArguments& arguments, cudaStream_t stream);
void launch_patterns(const ScoreRowsArguments& arguments, cudaStream_t stream);

// q and k of one layer on the GPU.
struct ScoreSource {
  const void* q = nullptr;      // (rows, n_heads, d_head)
  const void* k = nullptr;      // (rows, n_kv_heads, d_head)
  std::int64_t row_stride = 0;  // elements from one row of q to the next
  std::int64_t k_stride =
      0;  // elements from one row of k to the next; differs from row_stride for cached keys
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  float scale = 1.0f;
  float softcap = 0.0f;
  std::int64_t window = 0;
  DType dtype = DType::bf16;
  const float* sinks = nullptr;  // (n_heads) on the GPU, or null
};

// Copies scores and patterns of out.rows to the host in blocks of rows; the full (queries, keys)
// square is never on the GPU.
void show_scores(const RowScores& out, const ScoreSource& source, PassRows& rows,
                 cudaStream_t stream);

// q, k and v of one layer on the host, where edited scores are applied: an unedited row is
// recognised by its bits and keeps its z.
struct HostAttention {
  Tensor q;  // (rows, n_heads, d_head)
  Tensor k;  // (rows, n_kv_heads, d_head)
  Tensor v;  // (rows, n_kv_heads, d_head)
  std::span<const Sequence> sequences;
  float scale = 1.0f;
  float softcap = 0.0f;
  std::int64_t window = 0;
  std::span<const float> sinks = {};  // (n_heads) or empty

  void score_rows(const RowScores& out) const;
  void pattern_of_edited_scores(const RowScores& edited) const;
  void attend_edited_rows(const RowScores& edited, TensorView z) const;
  // Near-key and all-key statistics from the given row sums and the tokens of the rows.
  LayerAttention statistics(std::span<const rows::RunningSoftmax> row_sums,
                            std::span<const std::int32_t> ids,
                            const AttentionRequest& request) const;

 private:
  AttentionInput input() const;
};

}  // namespace cuda
}  // namespace qkscope
