// Vector loops over rows of float32 values, compiled for every CPU target: everything in ops that
// is not a matrix product. Rows may be unaligned. An output may alias an input.
#pragma once

#include <cstdint>

#include "qkscope/model.h"

namespace qkscope::rows {

void scale(float* x, std::int64_t count, float factor);       // x *= factor
void multiply(float* x, const float* y, std::int64_t count);  // x *= y
// x += factor y, fused
void add_scaled(float* x, const float* y, std::int64_t count, float factor);

void multiply_by_exp(float* x, const float* exponents, std::int64_t count);  // x *= exp(exponents)

// Applies the gated delta rule for one token to S (n, kStateColumns), a block of state columns:
//   S = diag(decays) S, w = rate (v - Sᵀ k), S += k wᵀ, output = Sᵀ q.
inline constexpr std::int64_t kStateColumns = 64;
struct DeltaRuleToken {
  const float* q;       // (n)
  const float* k;       // (n)
  const float* decays;  // (n)
  const float* v;       // (kStateColumns)
  float rate;
  std::int64_t n;
};
void apply_delta_rule(const DeltaRuleToken& token, float* state, float* output);

// Causal convolution: y[i] = bias[i] + sum over t of weight[t][i] x[t][i], or SiLU of that sum.
struct ConvolutionInput {
  const float* const* x;  // (taps) rows
  const float* weight;    // (taps, ...), rows `stride` apart
  std::int64_t stride;
  std::int64_t taps;
  const float* bias;  // or null
  bool silu;
};
void convolve(const ConvolutionInput& input, std::int64_t count, float* y);

// Dot products: out[r] = factor * sum over i of x[i] y[r][i], in 16 interleaved lanes of FMA.
struct DotProductInput {
  const float* x;  // (n)
  const float* y;  // (rows, n), rows `stride` apart
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t n;
};
void dot_products(const DotProductInput& input, float factor, float* out);

// State of an online softmax: maximum so far, and sum of exp(score - highest).
struct RunningSoftmax {
  float highest;
  float sum;
};

// pattern = softmax(scores)
void softmax(const float* scores, std::int64_t count, float* pattern);

// RMSNorm of each row: y = x / sqrt(mean(x²) + eps) * weight. x, y: (rows, n).
struct NormInput {
  const float* x;
  const float* weight;  // (n)
  std::int64_t rows;
  std::int64_t n;
  float eps;
};
void rms_norm(const NormInput& input, float* y);

// LayerNorm of rows: y = (x - mean) / sqrt(mean((x - mean)²) + eps) * weight + bias (or null).
void layer_norm(const NormInput& input, const float* bias, float* y);

// Gated activation: out = activation(gate) * up. xIELU is not supported. Clamped SwiGLU is
// (clip(up) + 1) * g sigmoid(alpha g) with g = min(gate, limit).
struct GateFunction {
  Activation activation;
  ClampedSwiglu swiglu = {};
};
void apply_gate(const GateFunction& function, const float* gate, const float* up,
                std::int64_t count, float* out);

// x = function(x)
void apply_activation(Activation function, const XieluWeights& xielu, float* x, std::int64_t count);

void clip(float* x, std::int64_t count, float limit);  // x = min(max(x, -limit), limit)

void soft_cap(float* x, std::int64_t count, float cap);  // x = cap tanh(x / cap)

// RoPE: factor * cos(angle) and factor * sin(angle), angle = position * inverse[i] in float32.
void compute_rotary_cos_sin(float position, const float* inverse, std::int64_t count, float factor,
                            float* cos, float* sin);

// Rotates pair i of x: (x[i], x[i + half]), or (x[2i], x[2i + 1]) if interleaved.
void rotate(float* x, const float* cos, const float* sin, std::int64_t half, bool interleaved);

}  // namespace qkscope::rows
