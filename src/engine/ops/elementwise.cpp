#include "engine/ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "base/core/convert.h"
#include "base/core/cpu_target.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/ops/attention.h"

#if QKSCOPE_SLEEF
// sleef.h declares FMA variants only if FP_FAST_FMA is defined; the library always has them.
#ifndef FP_FAST_FMA
#define FP_FAST_FMA
#endif
#include <sleef.h>
#endif

namespace qkscope {
namespace {

constexpr std::int64_t kElementsPerTask = 1 << 15;
constexpr std::int64_t kGatesPerTask = 1 << 14;  // each costs an exponential

// Calls body(values, count) for ranges of a contiguous tensor, in parallel.
template <typename Body>
void for_each_element_range(TensorView x, std::int64_t elements_per_task, Body body) {
  QKSCOPE_ASSERT(x.is_contiguous());
  float* values = x.data<float>();
  parallel_for_ranges(x.size(), elements_per_task, [&](std::int64_t begin, std::int64_t end) {
    body(values + begin, end - begin);
  });
}

// Calls norm_rows(rows of x, rows of y) for ranges of rows, in parallel.
template <typename NormRows>
void normalize_row_ranges(ConstTensorView x, std::span<const float> weight, double eps,
                          TensorView y, NormRows norm_rows) {
  const auto n = std::ssize(weight);
  QKSCOPE_ASSERT(x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape());
  QKSCOPE_ASSERT(x.dim(x.rank() - 1) == n);
  parallel_for_ranges(x.size() / n, std::max<std::int64_t>(1, kElementsPerTask / n),
                      [&](std::int64_t begin, std::int64_t end) {
                        norm_rows(rows::NormInput{x.data<float>() + begin * n, weight.data(),
                                                  end - begin, n, static_cast<float>(eps)},
                                  y.data<float>() + begin * n);
                      });
}

constexpr std::int64_t kRowsPerTask = 64;

// Returns theta^(2i / dim) with one float32 rounding per step, like PyTorch.
std::vector<float> theta_powers(double theta, std::int64_t dim) {
  std::vector<float> powers(static_cast<std::size_t>(dim / 2));
  for (std::size_t i = 0; i < powers.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    powers[i] = power(static_cast<float>(theta), exponent);
  }
  return powers;
}

std::vector<float> inverse_frequencies(double theta, std::int64_t dim) {
  auto inverse = theta_powers(theta, dim);
  for (float& value : inverse) value = 1.0f / value;
  return inverse;
}

RopeFrequencies linear_rope_frequencies(const RopeConfig& rope) {
  auto inverse = inverse_frequencies(rope.theta, rope.dim);
  for (float& value : inverse) value /= static_cast<float>(rope.factor);
  if (rope.type == RopeType::proportional)
    std::fill(inverse.begin() + rope.rotated_pairs, inverse.end(), 0.0f);
  return {inverse, 1.0f};
}

RopeFrequencies dynamic_rope_frequencies(const RopeConfig& rope, std::int64_t length) {
  if (length <= rope.max_positions) return {inverse_frequencies(rope.theta, rope.dim), 1.0f};
  const auto factor = static_cast<float>(rope.factor);
  const float stretch =
      factor * static_cast<float>(length) / static_cast<float>(rope.max_positions) -
      (factor - 1.0f);
  const double exponent = static_cast<double>(rope.dim) / static_cast<double>(rope.dim - 2);
  const float theta = static_cast<float>(rope.theta) *
                      static_cast<float>(std::pow(static_cast<double>(stretch), exponent));
  return {inverse_frequencies(theta, rope.dim), 1.0f};
}

double yarn_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  const auto mscale = [&](double scale) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(rope.factor) + 1.0;
  };
  if (rope.mscale != 0.0 && rope.mscale_all_dim != 0.0)
    return mscale(rope.mscale) / mscale(rope.mscale_all_dim);
  return mscale(1.0);
}

RopeFrequencies yarn_frequencies(const RopeConfig& rope) {
  // YaRN: returns the dimension that completes `rotations` full turns within the original context.
  const auto correction_dim = [&](double rotations) {
    return static_cast<double>(rope.dim) *
           std::log(static_cast<double>(rope.original_max) / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = correction_dim(rope.beta_fast);
  double high = correction_dim(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.dim - 1));
  if (low == high) high += 0.001;

  auto inverse = theta_powers(rope.theta, rope.dim);
  for (std::size_t i = 0; i < inverse.size(); ++i) {
    const float extrapolated = 1.0f / inverse[i];
    const float interpolated = 1.0f / (static_cast<float>(rope.factor) * inverse[i]);
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float keep = 1.0f - ramp;
    inverse[i] = interpolated * (1.0f - keep) + extrapolated * keep;
  }
  return {inverse, static_cast<float>(yarn_attention_factor(rope))};
}

RopeFrequencies llama3_frequencies(const RopeConfig& rope) {
  const auto factor = static_cast<float>(rope.factor);
  const auto original = static_cast<double>(rope.original_max);
  const auto longest = static_cast<float>(original / rope.low_freq_factor);
  const auto shortest = static_cast<float>(original / rope.high_freq_factor);
  auto inverse = inverse_frequencies(rope.theta, rope.dim);
  for (float& value : inverse) {
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / value;
    if (wavelength > longest) {
      value /= factor;
    } else if (wavelength >= shortest) {
      const float smooth =
          (static_cast<float>(original) / wavelength - static_cast<float>(rope.low_freq_factor)) /
          static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
      value = (1.0f - smooth) * value / factor + smooth * value;
    }
  }
  return {inverse, 1.0f};
}

RopeFrequencies longrope_frequencies(const RopeConfig& rope, std::int64_t length) {
  const auto& factors = length > rope.original_max ? rope.long_factor : rope.short_factor;
  auto inverse = theta_powers(rope.theta, rope.dim);
  for (std::size_t i = 0; i < inverse.size(); ++i)
    inverse[i] = 1.0f / (static_cast<float>(factors[i]) * inverse[i]);
  double attention = 1.0;
  if (rope.attention_factor)
    attention = *rope.attention_factor;
  else if (rope.factor > 1.0)
    attention =
        std::sqrt(1.0 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_max)));
  return {inverse, static_cast<float>(attention)};
}

}  // namespace

void embed_tokens(std::span<const std::int32_t> ids, const WeightMatrix& table, float scale,
                  TensorView y) {
  const auto width = table.values.dim(1);
  const float factor = scale * table.scale;
  parallel_for(std::ssize(ids), [&](std::int64_t row) {
    const auto id = ids[as_index(row)];
    QKSCOPE_ASSERT(id >= 0 && id < table.values.dim(0));
    const std::span<float> out(y.data<float>() + row * width, as_index(width));
    convert_to_float32(table.values.rows(id, id + 1), out);
    if (factor != 1.0f) rows::scale(out.data(), width, factor);
  });
}

void embed_positions(std::span<const Sequence> sequences, const WeightMatrix& table, TensorView y) {
  for (const auto& sequence : sequences) {
    std::vector<std::int32_t> positions(as_index(sequence.length));
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(sequence.past));
    embed_tokens(positions, table, 1.0f, y.rows(sequence.begin, sequence.begin + sequence.length));
  }
}

void rms_norm(ConstTensorView x, std::span<const float> weight, double eps, TensorView y) {
  normalize_row_ranges(x, weight, eps, y, rows::rms_norm);
}

void apply_norm(NormKind kind, ConstTensorView x, const NormWeights& norm, double eps,
                TensorView y) {
  if (norm.empty()) {
    if (y.bytes() != x.bytes()) std::memcpy(y.bytes(), x.bytes(), x.size_bytes());
    return;
  }
  if (kind == NormKind::rms) return rms_norm(x, norm.weight, eps, y);
  QKSCOPE_ASSERT(norm.bias.empty() || norm.bias.size() == norm.weight.size());
  const float* bias = norm.bias.empty() ? nullptr : norm.bias.data();
  normalize_row_ranges(x, norm.weight, eps, y, [&](const rows::NormInput& input, float* out) {
    rows::layer_norm(input, bias, out);
  });
}

void apply_gated_activation(const rows::GateFunction& function, ConstTensorView gate,
                            ConstTensorView up, TensorView out) {
  QKSCOPE_ASSERT(gate.shape() == up.shape() && gate.shape() == out.shape());
  QKSCOPE_ASSERT(gate.is_contiguous() && up.is_contiguous());
  for_each_element_range(out, kGatesPerTask, [&](float* values, std::int64_t count) {
    const auto begin = values - out.data<float>();
    rows::apply_gate(function, gate.data<float>() + begin, up.data<float>() + begin, count, values);
  });
}

void apply_activation(Activation activation, const XieluWeights& xielu, TensorView x) {
  for_each_element_range(x, kGatesPerTask, [&](float* values, std::int64_t count) {
    rows::apply_activation(activation, xielu, values, count);
  });
}

void clip(TensorView x, double limit) {
  QKSCOPE_ASSERT(limit > 0.0);
  for_each_element_range(x, kElementsPerTask, [&](float* values, std::int64_t count) {
    rows::clip(values, count, static_cast<float>(limit));
  });
}

void scale_tensor(TensorView x, double factor) {
  for_each_element_range(x, kElementsPerTask, [&](float* values, std::int64_t count) {
    rows::scale(values, count, static_cast<float>(factor));
  });
}

void add_in_place(TensorView x, ConstTensorView y) {
  QKSCOPE_ASSERT(x.shape() == y.shape() && y.is_contiguous());
  for_each_element_range(x, kElementsPerTask, [&](float* values, std::int64_t count) {
    rows::add_scaled(values, y.data<float>() + (values - x.data<float>()), count, 1.0f);
  });
}

void multiply_elements(TensorView x, ConstTensorView y) {
  QKSCOPE_ASSERT(x.shape() == y.shape() && y.is_contiguous());
  for_each_element_range(x, kElementsPerTask, [&](float* values, std::int64_t count) {
    rows::multiply(values, y.data<float>() + (values - x.data<float>()), count);
  });
}

void soft_cap(TensorView logits, double cap) {
  for_each_element_range(logits, kElementsPerTask, [&](float* values, std::int64_t count) {
    rows::soft_cap(values, count, static_cast<float>(cap));
  });
}

void scale_queries(TensorView q, const QueryScaling& scaling, std::span<const Sequence> sequences,
                   std::span<const std::int64_t> queries) {
  const auto width = q.dim(1) * q.dim(2);
  for (const auto& sequence : sequences) {
    const auto [first, end] = sequence_query_range(sequence, queries);
    parallel_for(end - first, [&, first = first](std::int64_t i) {
      const auto position = sequence.past + query_row(first + i, queries) - sequence.begin;
      const auto periods = (position + scaling.shift) / scaling.original_max;
      // The logarithm is computed in float64, because float32 logarithms differ between libraries.
      const auto logarithm = static_cast<float>(std::log(1.0 + static_cast<double>(periods)));
      const float factor = 1.0f + static_cast<float>(scaling.beta) * logarithm;
      rows::scale(q.data<float>() + (first + i) * width, width, factor);
    });
  }
}

float power(float base, float exponent) {
#if QKSCOPE_SLEEF
  static const bool fused = std::ranges::any_of(cpu_targets(), cpu_target_has_fma);
  return fused ? Sleef_powf1_u10purecfma(base, exponent) : Sleef_powf1_u10purec(base, exponent);
#else
  return static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
#endif
}

bool power_uses_sleef() {
  return QKSCOPE_SLEEF != 0;
}

RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t length) {
  return translate_exceptions([&]() -> RopeFrequencies {
    switch (rope.type) {
      case RopeType::standard:
        return {inverse_frequencies(rope.theta, rope.dim), 1.0f};
      case RopeType::linear:
      case RopeType::proportional:
        return linear_rope_frequencies(rope);
      case RopeType::dynamic:
        return dynamic_rope_frequencies(rope, length);
      case RopeType::yarn:
        return yarn_frequencies(rope);
      case RopeType::llama3:
        return llama3_frequencies(rope);
      case RopeType::longrope:
        return longrope_frequencies(rope, length);
    }
    assertion_failed("known rope type", __FILE__, __LINE__);
  });
}

RotaryTable rotary_table(const RopeConfig& rope, std::span<const Sequence> sequences) {
  const auto half = rope.dim / 2;
  const auto rows = sequences.empty() ? 0 : sequences.back().begin + sequences.back().length;
  RotaryTable table{Tensor({rows, half}), Tensor({rows, half})};
  for (const auto& sequence : sequences) {
    auto frequencies = rope_frequencies(rope, sequence.end());
    if (rope.reversed)
      for (float& inverse : frequencies.inverse) inverse = -inverse;
    parallel_for_ranges(sequence.length, kRowsPerTask, [&](std::int64_t first, std::int64_t end) {
      for (auto row = first; row < end; ++row) {
        const auto at = (sequence.begin + row) * half;
        rows::compute_rotary_cos_sin(static_cast<float>(sequence.past + row),
                                     frequencies.inverse.data(), half, frequencies.attention_factor,
                                     table.cos.data<float>() + at, table.sin.data<float>() + at);
      }
    });
  }
  return table;
}

void apply_rotary(const RotaryTable& table, bool interleaved, TensorView x, std::int64_t first) {
  const auto rows = x.dim(0);
  const auto heads = x.dim(1);
  const auto d_head = x.dim(2);
  const auto half = table.cos.dim(1);
  QKSCOPE_ASSERT(x.is_contiguous() && table.cos.dim(0) == rows && first + 2 * half <= d_head);
  parallel_for_ranges(rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      for (std::int64_t head = 0; head < heads; ++head)
        rows::rotate(x.data<float>() + (row * heads + head) * d_head + first,
                     table.cos.data<float>() + row * half, table.sin.data<float>() + row * half,
                     half, interleaved);
  });
}

void deinterleave_rotary_pairs(TensorView x, std::int64_t begin, std::int64_t dim) {
  QKSCOPE_ASSERT(x.is_contiguous() && begin + dim <= x.dim(2));
  parallel_for_ranges(x.dim(0) * x.dim(1), kRowsPerTask, [&](std::int64_t first, std::int64_t end) {
    std::vector<float> pairs(static_cast<std::size_t>(dim));
    for (auto head = first; head < end; ++head) {
      float* const values = x.data<float>() + head * x.dim(2) + begin;
      std::copy_n(values, dim, pairs.data());
      for (std::size_t i = 0; i < pairs.size(); ++i)
        values[i % 2 * (pairs.size() / 2) + i / 2] = pairs[i];
    }
  });
}

}  // namespace qkscope
