// Softmax attention on the device, for every head size up to 256 and every mask that gives each
// query one range of keys: causal, sliding window, packed sequences, and any of them for a chosen
// subset of the queries. attention_kernel.cpp checks and chooses; each element type has a file of
// its own (attention_bf16.cu, attention_f16.cu, attention_f32.cu), which compile side by side.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "engine/device/cuda/statistics/row_sums.h"

namespace qkscope::cuda {

// All pointers are to device memory. Heads lie side by side inside a row; a stride is the number of
// elements from one row to the next. Any stride and alignment works; rows of 16-byte multiples at
// 16-byte addresses are the fast path.
struct AttentionArguments {
  const void* q = nullptr;  // (queries, n_heads, d_head)
  const void* k = nullptr;  // (rows, n_kv_heads, d_head)
  const void* v = nullptr;  // (rows, n_kv_heads, d_head)
  void* z = nullptr;        // (queries, n_heads, d_head)
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, z_stride = 0;
  const std::int32_t* first_key = nullptr;  // (queries) first row of k that the query sees
  const std::int32_t* last_key = nullptr;   // (queries) last row that it sees, >= first_key
  // (queries) row of k where the query's sequence begins, <= first_key; or null. Key tiles are
  // counted from it, see below.
  const std::int32_t* sequence_begin = nullptr;
  std::int64_t queries = 0;
  std::int64_t n_heads = 0, n_kv_heads = 0, d_head = 0;
  float scale = 1.0f;         // multiplies q.k, > 0
  float softcap = 0.0f;       // scores become cap tanh(score / cap) before they are masked; 0: not
  DType dtype = DType::bf16;  // of q, k, v and z: bf16, f16 or f32
  RowSums row_sums = {};      // (queries, n_heads) or null
};

// z = softmax(scale q kᵀ, capped and masked) v, flash style: keys tile by tile with a running
// softmax. Scores and sums are float32; with 16-bit types the weights are rounded to the type for
// the product with v. The queries should ascend: a block of consecutive ones reads every tile that
// one of them sees.
//
// The same arguments give the same bits. The sums of a query run over tiles of keys, so its bits
// depend on where the tiles begin. With sequence_begin that is the begin of its sequence: then the
// bits do not change with the place of the sequence in the batch, nor with the other queries.
// Without it tiles are counted from the first key that any query of the block sees. For causal
// attention that is the same, but for blocks of queries that span two sequences; with a sliding
// window it changes with the subset of queries.
void attention(const AttentionArguments& arguments, cudaStream_t stream);

// The kernels of it. Arguments are checked, queries > 0.
void attention_bf16(const AttentionArguments& arguments, cudaStream_t stream);
void attention_f16(const AttentionArguments& arguments, cudaStream_t stream);
void attention_f32(const AttentionArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
