// The small operations between the matrix products and attention: embeddings, norms, activations,
// additions.
// All tensors are float32 and contiguous, but for the embedding's weights.
#pragma once

#include <span>

#include "engine/ops/sequence.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// y (ids, d_model) = table[ids] * scale, widened from the stored type.
void embed(std::span<const std::int32_t> ids, const WeightMatrix& table, float scale, TensorView y);

// y (rows, d_model) = table[position]
void embed_positions(std::span<const Sequence> sequences, const WeightMatrix& table, TensorView y);

// y = x / sqrt(mean(x²) + eps) * weight, over the last dimension. x and y (rows, n) or (rows,
// heads, n); they may be the same memory.
void rms_norm(ConstTensorView x, std::span<const float> weight, double eps, TensorView y);

// y = (x - mean(x)) / sqrt(mean((x - mean(x))²) + eps) * weight + bias, over the last dimension; an
// empty bias adds nothing. x and y may be the same memory.
void layer_norm(ConstTensorView x, const NormWeights& norm, double eps, TensorView y);

// The gate of the MLP: out = activation(gate) * up, each (rows, n); out may be gate or up.
void gated_activation(Activation activation, ConstTensorView gate, ConstTensorView up,
                      TensorView out);

// The same with gpt-oss' clamped SwiGLU, see ClampedSwiglu.
void clamped_swiglu(const ClampedSwiglu& swiglu, ConstTensorView gate, ConstTensorView up,
                    TensorView out);

// x = activation(x): an MLP without a gate. `xielu` counts where that is the activation.
void apply_activation(Activation activation, const XieluWeights& xielu, TensorView x);

// x = min(max(x, -limit), limit); limit > 0.
void clip(TensorView x, double limit);

void scale_by(TensorView x, double factor);  // x *= factor

// residual += update, of one shape.
void add_to(TensorView residual, ConstTensorView update);

// logits = cap * tanh(logits / cap)
void soft_cap(TensorView logits, double cap);

// q (queries, heads, d_head) of position p times 1 + beta ln(1 + floor(p / original_max)).
// `queries` gives the row of each query, ascending; empty: all rows.
void scale_queries(TensorView q, const QueryScaling& scaling, std::span<const Sequence> sequences,
                   std::span<const std::int64_t> queries = {});

}  // namespace qkscope
