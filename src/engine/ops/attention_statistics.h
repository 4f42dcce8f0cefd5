// What the queries of a batch pay to their keys (groups B and C), summed over the rows of each
// document, head and bucket. Scores have the bits that attention() had; only those of equal tokens,
// which lie apart, are dot products in another order. Sums over rows are float64 in a fixed order.
// The GPU has the same in device/cuda.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/attention.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope {

struct AttendedRows {
  AttentionInput input;                            // all rows are queries
  std::span<const rows::RunningSoftmax> row_sums;  // (rows, n_heads), from attention()
  std::span<const std::int32_t> ids;               // (rows) token ids
};

LayerAttention attention_statistics(const AttendedRows& attended, const AttentionRequest& request);

}  // namespace qkscope
