// The small operations between the matrix products and attention: embedding, norm, gate, additions.
// All tensors are float32 and contiguous, but for the embedding's weights.
#pragma once

#include <span>

#include "ops/sequence.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// y (ids, d_model) = table[ids] * scale, widened from the stored type.
void embed(std::span<const std::int32_t> ids, const WeightMatrix& table, float scale, TensorView y);

// y = x / sqrt(mean(x²) + eps) * weight, over the last dimension. x and y (rows, n) or (rows,
// heads, n); they may be the same memory.
void rms_norm(ConstTensorView x, std::span<const float> weight, double eps, TensorView y);

// The gate of the MLP: out = activation(gate) * up, each (rows, n); out may be gate or up.
void gated_activation(Activation activation, ConstTensorView gate, ConstTensorView up,
                      TensorView out);

// residual += update, of one shape.
void add_to(TensorView residual, ConstTensorView update);

// logits = cap * tanh(logits / cap)
void soft_cap(TensorView logits, double cap);

// q (queries, heads, d_head) of position p times 1 + beta ln(1 + floor(p / original_max)).
// `queries` gives the row of each query, ascending; empty: all rows.
void scale_queries(TensorView q, const QueryScaling& scaling, std::span<const Sequence> sequences,
                   std::span<const std::int64_t> queries = {});

}  // namespace qkscope
