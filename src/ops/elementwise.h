// Element-wise parts around the blocks.
#pragma once

#include <span>

#include "ops/sequence.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// residual += update; both float32, contiguous, of one shape.
void add_to(TensorView residual, ConstTensorView update);

// logits = cap * tanh(logits / cap)
void soft_cap(TensorView logits, double cap);

// q (queries, heads, d_head) of position p times 1 + beta ln(1 + floor(p / original_max)).
// `queries` gives the row of each query, ascending; empty: all rows.
void scale_queries(TensorView q, const QueryScaling& scaling, std::span<const Sequence> sequences,
                   std::span<const std::int64_t> queries = {});

}  // namespace qkscope
