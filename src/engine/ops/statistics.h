// Statistics over the rows of a batch; the CUDA counterparts are in device/cuda/statistics.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/ops/attention.h"
#include "engine/statistics/attention_sums.h"
#include "engine/statistics/moments.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Inputs of attention, and the softmax maximum and sum that attention returned for each row.
struct AttentionStatisticsInput {
  AttentionInput input;                            // every row is a query
  std::span<const rows::RunningSoftmax> row_sums;  // (rows, n_heads), from attention()
  std::span<const std::int32_t> ids;               // (rows) token ids
};

// Computes the attention statistics of one layer over near keys and all keys, summed over the rows
// of each document, head and bucket. Scores are bit-identical to those in attention(), except
// scores of equal tokens, which are separate dot products in another order. Sums over rows are
// float64 in a fixed order.
LayerAttentionSums compute_attention_statistics(const AttentionStatisticsInput& attended,
                                                const AttentionRequest& request);

struct DocumentMoments {
  LayerMoments moments;
  std::optional<std::int64_t> bad_head;  // first head with NaN or infinity, if any
};

// Computes the moments of one sequence of x (rows, heads, dim) in float64 around the means of
// chunks of at most 256 rows. The result is bit-identical regardless of other sequences in the
// batch.
DocumentMoments compute_document_moments(ConstTensorView x, const Sequence& sequence,
                                         const MomentRequest& request);

}  // namespace qkscope
