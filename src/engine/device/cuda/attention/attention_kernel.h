// Softmax attention for head sizes up to 256 and every mask that gives each query one contiguous
// range of keys: causal, sliding window, packed sequences, and any of them for a subset of the
// queries. attention_kernel.cpp checks arguments and dispatches; each element type has its own file
// (attention_bf16.cu, attention_f16.cu, attention_f32.cu) so that they compile in parallel.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "engine/device/cuda/statistics/row_sums.h"

namespace qkscope::cuda {

// All pointers are device pointers. The heads of a row are contiguous; strides are in elements. Any
// stride and alignment works; 16-byte aligned rows are the fast path.
struct AttentionArguments {
  const void* q = nullptr;  // (queries, n_heads, d_head)
  const void* k = nullptr;  // (rows, n_kv_heads, d_head)
  const void* v = nullptr;  // (rows, n_kv_heads, d_head)
  void* z = nullptr;        // (queries, n_heads, d_head)
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, z_stride = 0;
  const std::int32_t* first_key = nullptr;  // (queries) first visible row of k
  const std::int32_t* last_key = nullptr;   // (queries) last visible row of k, >= first_key
  // Shape (queries), or null. First row of k of the query's sequence, <= first_key: the origin of
  // its key tiles, see attention() below.
  const std::int32_t* sequence_begin = nullptr;
  std::int64_t queries = 0;
  std::int64_t n_heads = 0, n_kv_heads = 0, d_head = 0;
  float scale = 1.0f;         // multiplies q.k, > 0
  float softcap = 0.0f;       // soft cap before masking: cap tanh(score / cap); 0: none
  DType dtype = DType::bf16;  // of q, k, v and z: bf16, f16 or f32
  RowSums row_sums = {};      // (queries, n_heads) or null
};

// z = softmax(scale q kᵀ, capped and masked) v, as flash attention: key tiles with an online
// softmax. Scores and sums are float32; with 16-bit types the weights are rounded to the element
// type for the product with v. Queries should be in ascending order, because a block of consecutive
// queries reads every tile that one of them attends to.
//
// The result is deterministic. The bits of a query's row depend on where its key tiles start. With
// sequence_begin the tiles start at the query's sequence, so the bits depend neither on the
// position of the sequence in the batch nor on other queries. Without it the tiles start at the
// first key visible to any query of the block: the same for causal attention, except for blocks
// that span two sequences; with a sliding window the bits then depend on the subset of queries.
void attention(const AttentionArguments& arguments, cudaStream_t stream);

// Kernels per element type. Arguments are already checked; queries > 0.
void attention_bf16(const AttentionArguments& arguments, cudaStream_t stream);
void attention_f16(const AttentionArguments& arguments, cudaStream_t stream);
void attention_f32(const AttentionArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
