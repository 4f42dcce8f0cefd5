// Scores and patterns of chosen queries, for looking at.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "ops/attention.h"

namespace qkscope {

// For each given row (of q) its scaled, masked scores and their softmax against the keys of its own
// sequence. scores and pattern (n_heads, rows, keys), where keys is the length of the longest
// segment; what a query does not see is -infinity in scores and 0 in pattern. Either may be empty.
void attention_rows(const AttentionInput& input, std::span<const std::int64_t> rows,
                    TensorView scores, TensorView pattern);

}  // namespace qkscope
