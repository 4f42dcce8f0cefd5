// Attention scores and patterns of chosen queries: computed on the GPU to be shown, on the host to
// be edited. score_rows.cpp has the checks and what runs on the host, score_rows.cu the kernels.
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

// All pointers are to device memory; strides as in AttentionArguments.
struct ScoreRowsArguments {
  const void* q = nullptr;  // (any, n_heads, d_head)
  const void* k = nullptr;  // (any, n_kv_heads, d_head)
  std::int64_t q_stride = 0, k_stride = 0;
  const std::int32_t* rows = nullptr;            // (count) the chosen rows of q
  const std::int32_t* first_key = nullptr;       // (count) first row of k that each sees
  const std::int32_t* last_key = nullptr;        // (count) last row that it sees, >= first_key
  const std::int32_t* sequence_begin = nullptr;  // (count) row of k that is its column 0
  std::int64_t count = 0;
  std::int64_t keys = 0;  // columns; last_key - sequence_begin < keys
  std::int64_t n_heads = 0, n_kv_heads = 0, d_head = 0;
  float scale = 1.0f;            // multiplies q.k
  float softcap = 0.0f;          // scores become cap tanh(score / cap); 0: not
  DType dtype = DType::bf16;     // of q and k: bf16, f16 or f32
  float* scores = nullptr;       // (n_heads, count, keys) scale q.k, -infinity where not seen
  float* pattern = nullptr;      // (n_heads, count, keys) their softmax, 0 where not seen; or null
  const float* sinks = nullptr;  // (n_heads) a score more in each softmax, or null
};

// Products and sums are float32 whatever the type of q and k, in an order that depends on nothing
// but d_head and the column: a row has the same bits wherever its sequence lies in the batch.
void score_rows(const ScoreRowsArguments& arguments, cudaStream_t stream);

// The kernels of it. Arguments are checked, count and keys > 0.
void launch_scores(const ScoreRowsArguments& arguments, cudaStream_t stream);
void launch_patterns(const ScoreRowsArguments& arguments, cudaStream_t stream);

// q and k of a layer on the GPU.
struct ScoreSource {
  const void* q = nullptr;      // (rows, n_heads, d_head)
  const void* k = nullptr;      // (rows, n_kv_heads, d_head)
  std::int64_t row_stride = 0;  // elements from one row of q to the next
  std::int64_t k_stride = 0;    // the same of k; row_stride but for keys of a cache
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  float scale = 1.0f;
  float softcap = 0.0f;
  std::int64_t window = 0;
  DType dtype = DType::bf16;
  const float* sinks = nullptr;  // (n_heads) on the GPU, or null
};

// Scores and patterns of out.rows into the host's memory, some rows at a time: the square of all
// queries and keys is never on the GPU.
void show_scores(const RowScores& out, const ScoreSource& source, PassRows& rows,
                 cudaStream_t stream);

// q, k and v of a layer on the host, where scores that are edited are computed: there a row that is
// left alone is recognised by its bits.
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
  // Groups B and C with these sums of every row and head, and the tokens of the rows.
  LayerAttention statistics(std::span<const rows::RunningSoftmax> row_sums,
                            std::span<const std::int32_t> ids,
                            const AttentionRequest& request) const;

 private:
  AttentionInput input() const;
};

}  // namespace cuda
}  // namespace qkscope
