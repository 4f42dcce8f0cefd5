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
  std::int64_t window = 0;  // keys that a query sees, itself included; 0: no window
  std::int64_t chunk = 0;   // positions per chunk; a query sees keys of its own chunk; 0: one chunk
  float softcap = 0.0f;     // scores become cap tanh(score / cap) before masking; 0: no cap
  // Packed keys and values of a KV cache. If set, compute_attention() ignores k and v.
  const PackedKeyValues* packed = nullptr;
  std::span<const float> sinks = {};  // (n_heads) attention sinks: learned scores in each softmax
};

// z (queries, n_heads, d_value) = softmax(scale q kᵀ, capped and masked) v. Works block by block
// with an online softmax, so memory is linear in the length. row_sums: (queries, n_heads) maximum
// and sum of each softmax without the sink, or empty.
void compute_attention(const AttentionInput& input, TensorView z,
                       std::span<rows::RunningSoftmax> row_sums = {});

// Returns the batch row of a query. `queries`: rows of all queries, ascending; empty: every row.
inline std::int64_t query_row(std::int64_t query, std::span<const std::int64_t> queries) {
  return queries.empty() ? query : queries[static_cast<std::size_t>(query)];
}

// Returns the range [first, end) of queries that belong to the sequence.
inline std::pair<std::int64_t, std::int64_t> sequence_query_range(
    const Sequence& sequence, std::span<const std::int64_t> queries) {
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
// keys of its own sequence, for observers. scores, pattern: (n_heads, rows, length of the longest
// sequence), or empty to skip one; invisible keys are -infinity in scores and 0 in pattern.
// The CUDA counterpart is in device/cuda/attention/attention.h.
void compute_row_scores(const AttentionInput& input, std::span<const std::int64_t> rows,
                        TensorView scores, TensorView pattern);

// Computes the attention pattern from edited scores. A row whose scores are still those of
// compute_row_scores() keeps its pattern bit for bit. Does nothing if `pattern` is empty.
void recompute_attention_pattern(const AttentionInput& input, std::span<const std::int64_t> rows,
                                 ConstTensorView scores, TensorView pattern);

// Recomputes the attention output z (rows of q, n_heads, d_value) of rows whose scores or pattern
// were edited; either may be empty. Unedited scores are recomputed for comparison, because a second
// copy of the score matrix may not fit into memory.
void recompute_edited_rows(const AttentionInput& input, std::span<const std::int64_t> rows,
                           ConstTensorView scores, ConstTensorView pattern, TensorView z);

// Inputs of attention statistics: the attention inputs, each row's softmax sums, and the token ids.
struct AttentionStatisticsInput {
  AttentionInput input;                            // every row is a query
  std::span<const rows::RunningSoftmax> row_sums;  // (rows, n_heads), from compute_attention()
  std::span<const std::int32_t> ids;               // (rows) token ids
};

// Computes the attention statistics of one layer over near keys and all keys, summed over the rows
// of each document, head and position bucket. Scores are bit-identical to compute_attention(),
// except for keys of repeated tokens (separate dot products). Sums are float64 in a fixed order.
LayerAttentionSums compute_attention_statistics(const AttentionStatisticsInput& attended,
                                                const AttentionRequest& request);

struct DocumentMoments {
  LayerMoments moments;
  std::optional<std::int64_t> nonfinite_head;  // first head with NaN or infinity, if any
};

// Computes the moments of one sequence of x (rows, heads, dim) in float64: chunks of at most 256
// rows are centred and then merged. The bits do not depend on other sequences.
DocumentMoments compute_document_moments(ConstTensorView x, const Sequence& sequence,
                                         const MomentRequest& request);

}  // namespace qkscope
