// Scores and patterns of chosen queries on the device, for looking at: the square of all queries
// and keys is never there.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/dtype.h"

namespace qkscope::cuda {

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
  std::int64_t keys =
      0;  // columns; the last one seen is below it: last_key - sequence_begin < keys
  std::int64_t n_heads = 0, n_kv_heads = 0, d_head = 0;
  float scale = 1.0f;         // multiplies q.k
  DType dtype = DType::bf16;  // of q and k: bf16, f16 or f32
  float* scores = nullptr;    // (n_heads, count, keys) scale q.k, -infinity where not seen
  float* pattern = nullptr;   // (n_heads, count, keys) their softmax, 0 where not seen; or null
};

// Products and sums are float32 whatever the type of q and k, in an order that depends on nothing
// but d_head and the column: a row has the same bits wherever its document lies.
void score_rows(const ScoreRowsArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
