// Causal attention over packed sequences, with an optional sliding window, and statistics over the
// rows of a batch; the CUDA counterparts of the statistics are in device/cuda/statistics.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "engine/ops/row_kernels.h"
#include "engine/statistics/attention_sums.h"
#include "engine/statistics/moments.h"
#include "qkscope/forward.h"
#include "qkscope/tensor.h"

namespace qkscope {

class PackedKeyValues;

struct AttentionInput {
  ConstTensorView q;  // (queries, n_heads, d_head)
  ConstTensorView k;  // (rows, n_kv_heads, d_head), including cached positions before the batch
  ConstTensorView v;  // (rows, n_kv_heads, d_value), including cached positions before the batch
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> queries = {};  // the row of each query, ascending; empty: all rows
  float scale = 1.0f;                          // multiplies q.k
  std::int64_t window = 0;  // visible keys of a query, itself included; 0: all before it
  std::int64_t chunk = 0;   // a query sees keys of its own chunk of positions; 0: of all chunks
  float softcap = 0.0f;     // scores become cap tanh(score / cap) before masking; 0: no cap
  // Packed keys and values of a KV cache. If set, attention() ignores k and v.
  const PackedKeyValues* packed = nullptr;
  std::span<const float> sinks = {};  // (n_heads) learned score without a value in each softmax
};

// z (queries, n_heads, d_value) = softmax(scale q kᵀ, capped and masked) v. Works block by block
// with an online softmax, so memory is linear in the length. row_sums: (queries, n_heads) maximum
// and sum of each softmax without the sink, or empty.
void attention(const AttentionInput& input, TensorView z,
               std::span<rows::RunningSoftmax> row_sums = {});

// Returns the batch row of a query. `queries`: rows of all queries, ascending; empty: every row.
inline std::int64_t row_of_query(std::int64_t query, std::span<const std::int64_t> queries) {
  return queries.empty() ? query : queries[static_cast<std::size_t>(query)];
}

// Returns the range [first, end) of queries that belong to the sequence.
inline std::pair<std::int64_t, std::int64_t> query_range(const Sequence& sequence,
                                                         std::span<const std::int64_t> queries) {
  if (queries.empty()) return {sequence.begin, sequence.begin + sequence.length};
  const auto at = [&](std::int64_t row) {
    return std::lower_bound(queries.begin(), queries.end(), row) - queries.begin();
  };
  return {at(sequence.begin), at(sequence.begin + sequence.length)};
}

// Returns the first key row of a sequence in tensors that include cached positions.
inline std::int64_t first_key_row(std::span<const Sequence> sequences, std::size_t index) {
  auto row = sequences[index].begin;
  for (std::size_t i = 0; i < index; ++i) row += sequences[i].past;
  return row;
}

// Returns the first key position visible to the query at `position`.
inline std::int64_t first_visible_key(std::int64_t position, std::int64_t window,
                                      std::int64_t chunk = 0) {
  const auto in_chunk = chunk > 0 ? position / chunk * chunk : 0;
  return window > 0 && position >= window ? std::max(in_chunk, position - window + 1) : in_chunk;
}

// Computes scaled, capped and masked scores and their softmax for each given row of q, against the
// keys of its own sequence, for observers. scores, pattern: (n_heads, rows, keys) with keys the
// longest sequence; invisible keys are -infinity in scores and 0 in pattern. Either may be empty.
// The CUDA counterpart is in device/cuda/attention/attention.h.
void score_rows(const AttentionInput& input, std::span<const std::int64_t> rows, TensorView scores,
                TensorView pattern);

// Computes the pattern from edited scores. If the scores of a row are unchanged since score_rows(),
// its pattern stays bit-identical. Does nothing if pattern is empty.
void recompute_pattern(const AttentionInput& input, std::span<const std::int64_t> rows,
                       ConstTensorView scores, TensorView pattern);

// Recomputes z (rows of q, n_heads, d_value) where scores or pattern were edited; other rows keep
// z. Either `scores` or `pattern` is empty. Unedited scores are recomputed for comparison, because
// a second copy of the score matrix may not fit into memory.
void attend_edited_rows(const AttentionInput& input, std::span<const std::int64_t> rows,
                        ConstTensorView scores, ConstTensorView pattern, TensorView z);

// Inputs of attention, and the softmax maximum and sum that attention returned for each row.
struct AttentionStatisticsInput {
  AttentionInput input;                            // every row is a query
  std::span<const rows::RunningSoftmax> row_sums;  // (rows, n_heads), from attention()
  std::span<const std::int32_t> ids;               // (rows) token ids
};

// Computes the attention statistics of one layer over near keys and all keys, summed over the rows
// of each document, head and bucket. Scores are bit-identical to those in attention(), except those
// of equal tokens, which are separate dot products. Sums are float64 in a fixed order.
LayerAttentionSums compute_attention_statistics(const AttentionStatisticsInput& attended,
                                                const AttentionRequest& request);

struct DocumentMoments {
  LayerMoments moments;
  std::optional<std::int64_t> bad_head;  // first head with NaN or infinity, if any
};

// Computes the moments of one sequence of x (rows, heads, dim) in float64 around the means of
// chunks of at most 256 rows. The bits do not depend on other sequences.
DocumentMoments compute_document_moments(ConstTensorView x, const Sequence& sequence,
                                         const MomentRequest& request);

}  // namespace qkscope
