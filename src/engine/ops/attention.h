// Causal attention over packed sequences, with or without a sliding window.
#pragma once

#include <span>

#include "engine/ops/row_kernels.h"
#include "engine/ops/sequence.h"
#include "qkscope/tensor.h"

namespace qkscope {

class PackedKeys;

struct AttentionInput {
  ConstTensorView q;  // (queries, n_heads, d_head)
  ConstTensorView k;  // (rows, n_kv_heads, d_head); with positions before the batch, theirs too
  ConstTensorView v;  // (rows, n_kv_heads, d_head); with positions before the batch, theirs too
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> queries = {};  // the row of each query, ascending; empty: all rows
  float scale = 1.0f;                          // multiplies q.k
  std::int64_t window = 0;  // keys a query sees, itself included; 0: all before it
  float softcap = 0.0f;     // scores become cap tanh(score / cap) before they are masked; 0: not
  // Keys and values of all positions, where a cache holds them; attention() then reads neither k
  // nor v.
  const PackedKeys* packed = nullptr;
  std::span<const float> sinks = {};  // (n_heads) a score with no value that joins each softmax
};

// z (queries, n_heads, d_head) = softmax(scale q kᵀ, capped and masked) v. Keys are taken block by
// block with a running softmax: memory does not grow with the square of the length. row_sums
// (queries, n_heads) or empty: the softmax's highest score and sum of each row, without the sink.
void attention(const AttentionInput& input, TensorView z,
               std::span<rows::RunningSoftmax> row_sums = {});

// The first key position that the query at `position` sees.
inline std::int64_t first_visible_key(std::int64_t position, std::int64_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

}  // namespace qkscope
