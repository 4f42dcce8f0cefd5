// Causal attention over packed sequences, with an optional sliding window.
#pragma once

#include <span>

#include "engine/ops/row_kernels.h"
#include "engine/ops/sequence.h"
#include "qkscope/tensor.h"

namespace qkscope {

class PackedKeys;

// Operands of attention.
struct AttentionInput {
  ConstTensorView q;  // (queries, n_heads, d_head)
  ConstTensorView k;  // (rows, n_kv_heads, d_head), including cached positions before the batch
  ConstTensorView v;  // (rows, n_kv_heads, d_head), including cached positions before the batch
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> queries = {};  // the row of each query, ascending; empty: all rows
  float scale = 1.0f;                          // multiplies q.k
  std::int64_t window = 0;  // visible keys of a query, itself included; 0: all before it
  float softcap = 0.0f;     // scores become cap tanh(score / cap) before masking; 0: no cap
  // Packed keys and values of a KV cache; attention() then does not read k and v.
  const PackedKeys* packed = nullptr;
  std::span<const float> sinks =
      {};  // (n_heads) learned sink: an additional score without a value in each softmax
};

// z (queries, n_heads, d_head) = softmax(scale q kᵀ, capped and masked) v. Works block by block
// with an online softmax, so memory is linear in the length. row_sums: (queries, n_heads) maximum
// and sum of each softmax without the sink, or empty.
void attention(const AttentionInput& input, TensorView z,
               std::span<rows::RunningSoftmax> row_sums = {});

// Returns the first key position visible to the query at `position`.
inline std::int64_t first_visible_key(std::int64_t position, std::int64_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

}  // namespace qkscope
