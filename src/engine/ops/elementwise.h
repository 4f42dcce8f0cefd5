// Operations between matrix products and attention: embeddings, norms, activations, residual
// additions. All tensors are contiguous float32, except the weights of embeddings.
#pragma once

#include <span>

#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// y (ids, d_model) = table[ids] * scale, converted from the stored type.
void embed(std::span<const std::int32_t> ids, const WeightMatrix& table, float scale, TensorView y);

// y (rows, d_model) = table[position of each row].
void embed_positions(std::span<const Sequence> sequences, const WeightMatrix& table, TensorView y);

// y = x / sqrt(mean(x²) + eps) * weight over the last dimension n; x and y may alias.
void rms_norm(ConstTensorView x, std::span<const float> weight, double eps, TensorView y);

// y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimension; x and y may
// alias, and the bias may be empty.
void layer_norm(ConstTensorView x, const NormWeights& norm, double eps, TensorView y);

// Applies a norm of the given kind; copies x if the norm is empty. x and y may alias.
void normalize(NormKind kind, ConstTensorView x, const NormWeights& norm, double eps, TensorView y);

// Gated MLP: out = activation(gate) * up, each (rows, n); out may alias gate or up.
void gated_activation(Activation activation, ConstTensorView gate, ConstTensorView up,
                      TensorView out);

// Gated MLP with the clamped SwiGLU of gpt-oss; see ClampedSwiglu.
void clamped_swiglu(const ClampedSwiglu& swiglu, ConstTensorView gate, ConstTensorView up,
                    TensorView out);

// Ungated MLP: x = activation(x), in place. `xielu` holds the parameters of xIELU; other
// activations ignore it.
void apply_activation(Activation activation, const XieluWeights& xielu, TensorView x);

// x = min(max(x, -limit), limit); limit > 0.
void clip(TensorView x, double limit);

void scale_by(TensorView x, double factor);  // x *= factor

// residual += update, tensors of the same shape.
void add_to(TensorView residual, ConstTensorView update);

// logits = cap * tanh(logits / cap)
void soft_cap(TensorView logits, double cap);

// q (queries, heads, d_head) at position p *= 1 + beta ln(1 + floor(p / original_max)). `queries`
// are the ascending rows of the queries; empty: all rows.
void scale_queries(TensorView q, const QueryScaling& scaling, std::span<const Sequence> sequences,
                   std::span<const std::int64_t> queries = {});

}  // namespace qkscope
