// Operations between matrix products and attention: embeddings, norms, activations, residual
// additions, and the rotary position embedding (RoPE) of q and k (rope_frequencies is declared in
// qkscope/model.h). All tensors are contiguous float32, except the weights of embeddings.
#pragma once

#include <cstring>
#include <span>

#include "base/core/error.h"
#include "engine/ops/row_kernels.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

inline Tensor copy_tensor(ConstTensorView x) {
  Tensor copy(x.shape());
  std::memcpy(copy.view().bytes(), x.bytes(), x.size_bytes());
  return copy;
}

// Copies the given rows of a contiguous tensor (n, ...) to a new tensor.
inline Tensor copy_rows(ConstTensorView x, std::span<const std::int64_t> rows) {
  Shape shape = x.shape();
  shape[0] = std::ssize(rows);
  Tensor copy(shape, x.dtype());
  const auto width = static_cast<std::size_t>(x.stride(0)) * dtype_size(x.dtype());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    QKSCOPE_ASSERT(rows[i] < x.dim(0));
    std::memcpy(copy.view().bytes() + i * width,
                x.bytes() + static_cast<std::size_t>(rows[i]) * width, width);
  }
  return copy;
}

// Token embedding: y (ids, d_model) = table[ids] * scale, converted from the stored type.
void embed_tokens(std::span<const std::int32_t> ids, const WeightMatrix& table, float scale,
                  TensorView y);

// Learned position embedding: y (rows, d_model) = table[position of each row].
void embed_positions(std::span<const Sequence> sequences, const WeightMatrix& table, TensorView y);

// RMSNorm: y = x / sqrt(mean(x²) + eps) * weight over the last dimension n; x and y may alias.
void rms_norm(ConstTensorView x, std::span<const float> weight, double eps, TensorView y);

// Applies a norm: RMSNorm, or LayerNorm y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias.
// Copies x if the norm is empty. x and y may alias.
void apply_norm(NormKind kind, ConstTensorView x, const NormWeights& norm, double eps,
                TensorView y);

// Gated MLP: out = function(gate) * up, each (rows, n); out may alias gate or up.
void apply_gated_activation(const rows::GateFunction& function, ConstTensorView gate,
                            ConstTensorView up, TensorView out);

// Ungated MLP: x = activation(x), in place. Activations other than xIELU ignore `xielu`.
void apply_activation(Activation activation, const XieluWeights& xielu, TensorView x);

// Clips values: x = min(max(x, -limit), limit); limit > 0.
void clip(TensorView x, double limit);

void scale_tensor(TensorView x, double factor);           // x *= factor
void multiply_elements(TensorView x, ConstTensorView y);  // x *= y, of the same shape

void add_in_place(TensorView x, ConstTensorView y);  // x += y, of the same shape

// logits = cap * tanh(logits / cap)
void soft_cap(TensorView logits, double cap);

// Scales q (n, heads, d_head) by 1 + beta ln(1 + floor((p + shift) / original_max)), where p is the
// position of the query in batch row queries[i] (ascending), or in row i if `queries` is empty.
void scale_queries(TensorView q, const QueryScaling& scaling, std::span<const Sequence> sequences,
                   std::span<const std::int64_t> queries = {});

// RoPE cosines and sines of all rows of a batch.
struct RotaryTable {
  Tensor cos;  // (rows, dim / 2), multiplied by the attention factor of RoPE scaling
  Tensor sin;  // (rows, dim / 2), multiplied by the attention factor of RoPE scaling
};

// Computes RoPE cosines and sines of a batch. Angles are float32 position times float32 inverse
// frequency; each sequence has its own frequencies if they depend on its length.
RotaryTable rotary_table(const RopeConfig& rope, std::span<const Sequence> sequences);

// Rotates `dim` components of every head of x (rows, heads, d_head) in place, from component
// `begin` on. Pairs are (i, i + dim/2), or (2i, 2i+1) if interleaved.
void apply_rotary(const RotaryTable& table, bool interleaved, TensorView x, std::int64_t begin = 0);

// Moves the rotated pairs (2i, 2i+1) of every head of x (rows, heads, d_head) to (i, i + dim/2) in
// place. Component indices are relative to `begin`.
void deinterleave_rotary_pairs(TensorView x, std::int64_t begin, std::int64_t dim);

// Returns base^exponent in float32. PyTorch uses SLEEF, which is not always correctly rounded: at
// position 131,072 one ULP of a frequency is up to 0.008 rad. Builds without SLEEF round correctly.
float power(float base, float exponent);
bool power_uses_sleef();

}  // namespace qkscope
