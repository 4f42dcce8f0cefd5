// Kernels of row_kernels.h: norms, softmax, activations, rotary embedding and sums over rows.
//
// Layout: contiguous float32 rows at any alignment; an output may alias an input.
// Registers: vectors of kFloats elements. Reductions use 16 interleaved lanes (element i in lane
// i % 16) added in one fixed order, so bits do not depend on the vector width.
// Invariant: erf, tanh, expm1, cos and sin are computed in float64 and rounded once; exp is a
// float32 polynomial with at most 2 ULP. The partial vector at the end of a row is loaded and
// stored through a local buffer: no element beyond a row is read or written. Reference:
// tests/engine/ops/row_kernels_test.cpp and elementwise_test.cpp, plain float64 loops.
#include "engine/ops/row_kernels.h"

#include <cmath>
#include <cstring>

#include "base/core/cpu_target.h"
#include "base/core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/row_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/ops/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::rows::HWY_NAMESPACE {

using namespace qkscope::HWY_NAMESPACE;  // vector_math-inl.h

constexpr FloatTag kTag;

void scale_kernel(float* x, std::int64_t count, float factor) {
  const auto factors = hn::Set(kTag, factor);
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    store(hn::Mul(load(x + i, extent), factors), x + i, extent);
  });
}

void multiply_kernel(float* x, const float* y, std::int64_t count) {
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    store(hn::Mul(load(x + i, extent), load(y + i, extent)), x + i, extent);
  });
}

void add_scaled_kernel(float* x, const float* y, std::int64_t count, float factor) {
  const auto factors = hn::Set(kTag, factor);
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    store(hn::MulAdd(load(y + i, extent), factors, load(x + i, extent)), x + i, extent);
  });
}

void multiply_by_exp_kernel(float* x, const float* exponents, std::int64_t count) {
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    store(hn::Mul(load(x + i, extent), exp_approx(kTag, load(exponents + i, extent))), x + i,
          extent);
  });
}

HWY_INLINE float dot(const float* x, const float* y, std::int64_t count) {
  return sum_terms(count, [&](std::int64_t i, auto extent, FloatVector sum) HWY_ATTR {
    return hn::MulAdd(load(x + i, extent), load(y + i, extent), sum);
  });
}

// The first loop over the rows of the state S computes Sᵀ k and Sᵀ q of the decayed state, with one
// accumulator per column; the second updates S. Output: Sᵀ q + (q·k) w, where w = rate (v - Sᵀ k).
void apply_delta_rule_kernel(const DeltaRuleToken& token, float* state, float* output) {
  constexpr std::int64_t kVectors = kFloats == 4 ? 8 : 4;  // as many as registers hold
  static_assert(kStateColumns % (kVectors * kFloats) == 0);
  const auto q_k = hn::Set(kTag, dot(token.q, token.k, token.n));
  const auto rate = hn::Set(kTag, token.rate);
  for (std::int64_t column = 0; column < kStateColumns; column += kVectors * kFloats) {
    FloatVector predicted[kVectors];
    FloatVector read[kVectors];
    for (std::int64_t v = 0; v < kVectors; ++v) predicted[v] = read[v] = hn::Zero(kTag);
    for (std::int64_t i = 0; i < token.n; ++i) {
      const float* const row = state + i * kStateColumns + column;
      const auto k = hn::Set(kTag, token.k[i] * token.decays[i]);
      const auto q = hn::Set(kTag, token.q[i] * token.decays[i]);
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kVectors; ++v) {
        const auto s = hn::LoadU(kTag, row + v * kFloats);
        predicted[v] = hn::MulAdd(k, s, predicted[v]);
        read[v] = hn::MulAdd(q, s, read[v]);
      }
    }
    for (std::int64_t v = 0; v < kVectors; ++v) {
      const auto at = column + v * kFloats;
      auto& written = predicted[v];
      written = hn::Mul(rate, hn::Sub(hn::LoadU(kTag, token.v + at), written));
      hn::StoreU(hn::MulAdd(q_k, written, read[v]), kTag, output + at);
    }
    for (std::int64_t i = 0; i < token.n; ++i) {
      float* const row = state + i * kStateColumns + column;
      const auto k = hn::Set(kTag, token.k[i]);
      const auto decay = hn::Set(kTag, token.decays[i]);
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kVectors; ++v)
        hn::StoreU(hn::MulAdd(k, predicted[v], hn::Mul(decay, hn::LoadU(kTag, row + v * kFloats))),
                   kTag, row + v * kFloats);
    }
  }
}

void dot_products_kernel(const DotProductInput& input, float factor, float* out) {
  for (std::int64_t row = 0; row < input.rows; ++row)
    out[row] = factor * dot(input.x, input.y + row * input.stride, input.n);
}

void softmax_kernel(const float* scores, std::int64_t count, float* pattern) {
  const auto highest = hn::Set(kTag, max_over_row(scores, count, scores[0]));
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    store(exp_approx(kTag, hn::Sub(load(scores + i, extent), highest)), pattern + i, extent);
  });
  scale_kernel(pattern, count, 1.0f / sum_over_row(pattern, count));
}

void rms_norm_kernel(const NormInput& input, float* y) {
  for (std::int64_t row = 0; row < input.rows; ++row) {
    const float* x = input.x + row * input.n;
    float* out = y + row * input.n;
    const float squares = dot(x, x, input.n);
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(input.n) + input.eps);
    const auto factor = hn::Set(kTag, scale);
    for_each_vector(input.n, [&](std::int64_t i, auto extent) HWY_ATTR {
      store(hn::Mul(hn::Mul(load(x + i, extent), factor), load(input.weight + i, extent)), out + i,
            extent);
    });
  }
}

// Two passes: subtracting the mean first avoids cancellation in rows far from 0.
void layer_norm_kernel(const NormInput& input, const float* bias, float* y) {
  for (std::int64_t row = 0; row < input.rows; ++row) {
    const float* x = input.x + row * input.n;
    float* out = y + row * input.n;
    const auto mean = hn::Set(kTag, sum_over_row(x, input.n) / static_cast<float>(input.n));
    for_each_vector(input.n, [&](std::int64_t i, auto extent) HWY_ATTR {
      store(hn::Sub(load(x + i, extent), mean), out + i, extent);
    });
    const float squares = dot(out, out, input.n);
    const auto factor =
        hn::Set(kTag, 1.0f / std::sqrt(squares / static_cast<float>(input.n) + input.eps));
    for_each_vector(input.n, [&](std::int64_t i, auto extent) HWY_ATTR {
      const auto normalized = hn::Mul(load(out + i, extent), factor);
      const auto weight = load(input.weight + i, extent);
      store(bias == nullptr ? hn::Mul(normalized, weight)
                            : hn::MulAdd(normalized, weight, load(bias + i, extent)),
            out + i, extent);
    });
  }
}

HWY_INLINE FloatVector silu(FloatVector x) {
  return hn::Div(x, hn::Add(hn::Set(kTag, 1.0f), exp_approx(kTag, hn::Neg(x))));
}

void convolve_kernel(const ConvolutionInput& input, std::int64_t count, float* y) {
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    auto sum = input.bias == nullptr ? hn::Zero(kTag) : load(input.bias + i, extent);
    for (std::int64_t t = 0; t < input.taps; ++t)
      sum = hn::MulAdd(load(input.weight + t * input.stride + i, extent),
                       load(input.x[t] + i, extent), sum);
    store(input.silu ? silu(sum) : sum, y + i, extent);
  });
}

// GELU, tanh approximation: x / 2 (1 + tanh(u)) with tanh(u) = 1 - 2 / (exp(2u) + 1).
HWY_INLINE FloatVector gelu_tanh(FloatVector x) {
  const auto one = hn::Set(kTag, 1.0f);
  const auto square = hn::Mul(hn::Mul(hn::Set(kTag, 0.044715f), x), x);
  const auto u = hn::Mul(hn::Set(kTag, 0.7978845608028654f), hn::MulAdd(square, x, x));
  const auto power = exp_approx(kTag, hn::Add(u, u));
  return hn::Mul(x, hn::Sub(one, hn::Div(one, hn::Add(power, one))));
}

HWY_INLINE FloatVector gelu(FloatVector x) {
  const auto inner = hn::Mul(x, hn::Set(kTag, 0.7071067811865476f));
  const auto outer = round_to_floats(erf(widen_lower_half(inner)), erf(widen_upper_half(inner)));
  return hn::Mul(hn::Mul(hn::Set(kTag, 0.5f), x), hn::Add(hn::Set(kTag, 1.0f), outer));
}

HWY_INLINE FloatVector sigmoid(FloatVector x) {
  const auto one = hn::Set(kTag, 1.0f);
  return hn::Div(one, hn::Add(one, exp_approx(kTag, hn::Neg(x))));
}

// max(x, 0)²; NaN stays NaN.
HWY_INLINE FloatVector relu2(FloatVector x) {
  const auto above = hn::IfThenElse(hn::Lt(x, hn::Zero(kTag)), hn::Zero(kTag), x);
  return hn::Mul(above, above);
}

// exp(x) - 1 for x <= 0 in float64; cancellation leaves 9 digits at x = -1e-6.
HWY_INLINE DoubleVector expm1_of_negative(DoubleVector x) {
  const DoubleTag d;
  const auto hundred = hn::Set(d, 100.0);
  const auto size = hn::Neg(x);
  const auto within = hn::IfThenElse(hn::Gt(size, hundred), hundred, size);  // NaN stays NaN
  const auto one = hn::Set(d, 1.0);
  return hn::Sub(hn::Div(one, exp_of_positive(within)), one);
}

// xIELU (arXiv 2411.13010); see XieluWeights.
HWY_INLINE FloatVector xielu(FloatVector x, const XieluWeights& w) {
  const auto beta = hn::Set(kTag, w.beta);
  const auto eps = hn::Set(kTag, w.eps);
  const auto linear = hn::Mul(beta, x);
  const auto above = hn::Add(hn::Mul(hn::Mul(hn::Set(kTag, w.alpha_p), x), x), linear);
  const auto least = hn::IfThenElse(hn::Gt(x, eps), eps, x);
  const auto curve = round_to_floats(expm1_of_negative(widen_lower_half(least)),
                                     expm1_of_negative(widen_upper_half(least)));
  const auto below = hn::Add(hn::Mul(hn::Sub(curve, x), hn::Set(kTag, w.alpha_n)), linear);
  return hn::IfThenElse(hn::Gt(x, hn::Zero(kTag)), above, below);
}

// Calls apply(f), where f is the SIMD implementation of the given activation function.
template <typename Apply>
HWY_INLINE void select_activation(Activation activation, const XieluWeights& weights, Apply apply) {
  switch (activation) {
    case Activation::silu:
      return apply([](FloatVector x) HWY_ATTR { return silu(x); });
    case Activation::gelu_tanh:
      return apply([](FloatVector x) HWY_ATTR { return gelu_tanh(x); });
    case Activation::gelu:
      return apply([](FloatVector x) HWY_ATTR { return gelu(x); });
    case Activation::relu2:
      return apply([](FloatVector x) HWY_ATTR { return relu2(x); });
    case Activation::sigmoid:
      return apply([](FloatVector x) HWY_ATTR { return sigmoid(x); });
    case Activation::xielu:
      return apply([&](FloatVector x) HWY_ATTR { return xielu(x, weights); });
    case Activation::clamped_swiglu:
      QKSCOPE_ASSERT(false);
  }
}

HWY_INLINE void apply_clamped_gate(const ClampedSwiglu& swiglu, const float* gate, const float* up,
                                   std::int64_t count, float* out) {
  const auto limit = hn::Set(kTag, swiglu.limit);
  const auto alpha = hn::Set(kTag, swiglu.alpha);
  const auto one = hn::Set(kTag, 1.0f);
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    // NaN passes through the clamps of gate and up, because comparisons with NaN are false.
    const auto gates = load(gate + i, extent);
    const auto ups = load(up + i, extent);
    const auto g = hn::IfThenElse(hn::Gt(gates, limit), limit, gates);
    const auto below = hn::IfThenElse(hn::Gt(ups, limit), limit, ups);
    const auto u = hn::IfThenElse(hn::Lt(below, hn::Neg(limit)), hn::Neg(limit), below);
    // SiLU identity: g sigmoid(alpha g) = silu(alpha g) / alpha.
    const auto glu = hn::Div(silu(hn::Mul(alpha, g)), alpha);
    store(hn::Mul(hn::Add(u, one), glu), out + i, extent);
  });
}

void apply_gate_kernel(const GateFunction& function, const float* gate, const float* up,
                       std::int64_t count, float* out) {
  const auto& [activation, swiglu] = function;
  QKSCOPE_ASSERT(activation != Activation::xielu);
  if (activation == Activation::clamped_swiglu)
    return apply_clamped_gate(swiglu, gate, up, count, out);
  select_activation(activation, {}, [&](auto apply) HWY_ATTR {
    for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
      store(hn::Mul(apply(load(gate + i, extent)), load(up + i, extent)), out + i, extent);
    });
  });
}

void apply_activation_kernel(Activation activation, const XieluWeights& weights, float* x,
                             std::int64_t count) {
  select_activation(activation, weights, [&](auto function) HWY_ATTR {
    for_each_vector(count, [&](std::int64_t i, auto extent)
                               HWY_ATTR { store(function(load(x + i, extent)), x + i, extent); });
  });
}

void clip_kernel(float* x, std::int64_t count, float limit) {
  const auto most = hn::Set(kTag, limit);
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    store(hn::Clamp(load(x + i, extent), hn::Neg(most), most), x + i, extent);
  });
}

void soft_cap_kernel(float* x, std::int64_t count, float cap) {
  const auto limit = hn::Set(kTag, cap);
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    const auto inner = hn::Div(load(x + i, extent), limit);
    const auto outer =
        round_to_floats(tanh(widen_lower_half(inner)), tanh(widen_upper_half(inner)));
    store(hn::Mul(limit, outer), x + i, extent);
  });
}

void compute_rotary_cos_sin_kernel(float position, const float* inverse, std::int64_t count,
                                   float factor, float* cos, float* sin) {
  const auto positions = hn::Set(kTag, position);
  const auto factors = hn::Set(kTag, factor);
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    const auto angle = hn::Mul(positions, load(inverse + i, extent));
    const auto lower = cos_sin(widen_lower_half(angle));
    const auto upper = cos_sin(widen_upper_half(angle));
    store(hn::Mul(round_to_floats(lower.cos, upper.cos), factors), cos + i, extent);
    store(hn::Mul(round_to_floats(lower.sin, upper.sin), factors), sin + i, extent);
  });
}

struct VectorPair {
  FloatVector first, second;
};

HWY_INLINE VectorPair rotate_pairs(VectorPair pair, FloatVector cos, FloatVector sin) {
  return {hn::NegMulAdd(pair.second, sin, hn::Mul(pair.first, cos)),
          hn::MulAdd(pair.first, sin, hn::Mul(pair.second, cos))};
}

HWY_INLINE void rotate_interleaved(float* x, FloatVector cos, FloatVector sin) {
  FloatVector first, second;
  hn::LoadInterleaved2(kTag, x, first, second);
  const auto pair = rotate_pairs({first, second}, cos, sin);
  hn::StoreInterleaved2(pair.first, pair.second, kTag, x);
}

void rotate_kernel(float* x, const float* cos, const float* sin, std::int64_t half,
                   bool interleaved) {
  if (!interleaved)
    return for_each_vector(half, [&](std::int64_t i, auto extent) HWY_ATTR {
      const auto pair = rotate_pairs({load(x + i, extent), load(x + half + i, extent)},
                                     load(cos + i, extent), load(sin + i, extent));
      store(pair.first, x + i, extent);
      store(pair.second, x + half + i, extent);
    });
  std::int64_t i = 0;
  for (; i + kFloats <= half; i += kFloats)
    rotate_interleaved(x + 2 * i, load(cos + i, AllLanes()), load(sin + i, AllLanes()));
  if (i == half) return;
  float pairs[2 * kFloats] = {};
  const auto bytes = static_cast<std::size_t>(half - i) * 2 * sizeof(float);
  std::memcpy(pairs, x + 2 * i, bytes);
  rotate_interleaved(pairs, load(cos + i, LaneCount{half - i}), load(sin + i, LaneCount{half - i}));
  std::memcpy(x + 2 * i, pairs, bytes);
}

}  // namespace qkscope::rows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope::rows {

QKSCOPE_EXPORT_KERNEL(void, scale, (float* x, std::int64_t count, float factor),
                      (x, count, factor));
QKSCOPE_EXPORT_KERNEL(void, multiply, (float* x, const float* y, std::int64_t count),
                      (x, y, count));
QKSCOPE_EXPORT_KERNEL(void, add_scaled,
                      (float* x, const float* y, std::int64_t count, float factor),
                      (x, y, count, factor));
QKSCOPE_EXPORT_KERNEL(void, multiply_by_exp, (float* x, const float* exponents, std::int64_t count),
                      (x, exponents, count));
QKSCOPE_EXPORT_KERNEL(void, apply_delta_rule,
                      (const DeltaRuleToken& token, float* state, float* output),
                      (token, state, output));
QKSCOPE_EXPORT_KERNEL(void, convolve, (const ConvolutionInput& input, std::int64_t count, float* y),
                      (input, count, y));
QKSCOPE_EXPORT_KERNEL(void, dot_products, (const DotProductInput& input, float factor, float* out),
                      (input, factor, out));
QKSCOPE_EXPORT_KERNEL(void, softmax, (const float* scores, std::int64_t count, float* pattern),
                      (scores, count, pattern));
QKSCOPE_EXPORT_KERNEL(void, rms_norm, (const NormInput& input, float* y), (input, y));
QKSCOPE_EXPORT_KERNEL(void, layer_norm, (const NormInput& input, const float* bias, float* y),
                      (input, bias, y));
QKSCOPE_EXPORT_KERNEL(void, apply_gate,
                      (const GateFunction& function, const float* gates, const float* up,
                       std::int64_t count, float* out),
                      (function, gates, up, count, out));
QKSCOPE_EXPORT_KERNEL(void, apply_activation,
                      (Activation activation, const XieluWeights& xielu, float* x,
                       std::int64_t count),
                      (activation, xielu, x, count));
QKSCOPE_EXPORT_KERNEL(void, clip, (float* x, std::int64_t count, float limit), (x, count, limit));
QKSCOPE_EXPORT_KERNEL(void, soft_cap, (float* x, std::int64_t count, float cap), (x, count, cap));
QKSCOPE_EXPORT_KERNEL(void, compute_rotary_cos_sin,
                      (float position, const float* inverse, std::int64_t count, float factor,
                       float* cos, float* sin),
                      (position, inverse, count, factor, cos, sin));
QKSCOPE_EXPORT_KERNEL(void, rotate,
                      (float* x, const float* cos, const float* sin, std::int64_t half,
                       bool interleaved),
                      (x, cos, sin, half, interleaved));

}  // namespace qkscope::rows
#endif
