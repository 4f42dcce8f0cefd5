// Attention scores and patterns of selected queries, for observers that read or edit them. The CUDA
// counterpart is in device/cuda/attention/score_rows.h.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/attention.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Computes scaled, capped and masked scores and their softmax for each given row of q, against the
// keys of its own sequence. scores, pattern: (n_heads, rows, keys) with keys the longest sequence;
// invisible keys are -infinity in scores and 0 in pattern. Either may be empty.
void score_rows(const AttentionInput& input, std::span<const std::int64_t> rows, TensorView scores,
                TensorView pattern);

// Computes the pattern from edited scores. A row whose scores still have the values of score_rows
// keeps the bits of its pattern. Does nothing if pattern is empty.
void pattern_of_edited_scores(const AttentionInput& input, std::span<const std::int64_t> rows,
                              ConstTensorView scores, TensorView pattern);

// Recomputes z (rows of q, n_heads, d_head) of rows with edited scores or pattern (the other is
// empty), from the pattern and all values of the sequence; other rows keep z. Unedited scores are
// recomputed for comparison, because a second square of scores may not fit into memory.
void attend_edited_rows(const AttentionInput& input, std::span<const std::int64_t> rows,
                        ConstTensorView scores, ConstTensorView pattern, TensorView z);

}  // namespace qkscope
