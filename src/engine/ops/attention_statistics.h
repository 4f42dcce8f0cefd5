// Attention statistics of a batch over near keys and all keys, summed over the rows of each
// document, head and bucket. Scores have the bits of attention(), except those of equal tokens,
// which are separate dot products in another order. Row sums are float64 in a fixed order. The CUDA
// counterpart is in device/cuda/statistics.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/attention.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope {

// Inputs of attention and the softmax sums it returned.
struct AttendedRows {
  AttentionInput input;                            // every row is a query
  std::span<const rows::RunningSoftmax> row_sums;  // (rows, n_heads), from attention()
  std::span<const std::int32_t> ids;               // (rows) token ids
};

// Computes the requested statistics of one layer.
LayerAttention attention_statistics(const AttendedRows& attended, const AttentionRequest& request);

}  // namespace qkscope
