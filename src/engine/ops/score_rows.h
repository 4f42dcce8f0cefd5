// Attention scores and patterns of chosen queries, to show and to edit. The GPU has the same in
// device/cuda/score_rows.h.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/attention.h"
#include "qkscope/tensor.h"

namespace qkscope {

// For each given row (of q) its scaled, capped and masked scores and their softmax against the keys
// of its own sequence. scores and pattern (n_heads, rows, keys), where keys is the length of the
// longest sequence; what a query does not see is -infinity in scores and 0 in pattern. Either may
// be empty.
void score_rows(const AttentionInput& input, std::span<const std::int64_t> rows, TensorView scores,
                TensorView pattern);

// After an edit of `scores`: the pattern of each row, from its scores as they are now. A row that
// has the scores that score_rows gave keeps the bits of its pattern. An empty pattern is left.
void pattern_of_edited_scores(const AttentionInput& input, std::span<const std::int64_t> rows,
                              ConstTensorView scores, TensorView pattern);

// After an edit of scores, pattern or both (the other is empty): z (rows of q, n_heads, d_head) of
// each row that was changed, from its pattern as it is now and every value of its sequence. Rows
// that were not changed keep their z. The scores before the edit are computed again to compare
// with: a second square would not fit where one does.
void attend_edited_rows(const AttentionInput& input, std::span<const std::int64_t> rows,
                        ConstTensorView scores, ConstTensorView pattern, TensorView z);

}  // namespace qkscope
