#include "engine/ops/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/core/error.h"
#include "base/core/translate_exceptions.h"

namespace qkscope {
namespace {

// theta^(2i/dim), one float32 rounding per step.
std::vector<float> wavelengths(double theta, std::int64_t dim) {
  std::vector<float> powers(static_cast<std::size_t>(dim / 2));
  for (std::size_t i = 0; i < powers.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    powers[i] = power(static_cast<float>(theta), exponent);
  }
  return powers;
}

std::vector<float> plain(double theta, std::int64_t dim) {
  auto inverse = wavelengths(theta, dim);
  for (float& value : inverse) value = 1.0f / value;
  return inverse;
}

RopeFrequencies linear(const RopeConfig& rope) {
  auto inverse = plain(rope.theta, rope.dim);
  for (float& value : inverse) value /= static_cast<float>(rope.factor);
  return {inverse, 1.0f};
}

RopeFrequencies dynamic(const RopeConfig& rope, std::int64_t length) {
  if (length <= rope.max_positions) return {plain(rope.theta, rope.dim), 1.0f};
  const auto factor = static_cast<float>(rope.factor);
  const float stretch =
      factor * static_cast<float>(length) / static_cast<float>(rope.max_positions) -
      (factor - 1.0f);
  const double exponent = static_cast<double>(rope.dim) / static_cast<double>(rope.dim - 2);
  const float theta = static_cast<float>(rope.theta) *
                      static_cast<float>(std::pow(static_cast<double>(stretch), exponent));
  return {plain(theta, rope.dim), 1.0f};
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

RopeFrequencies yarn(const RopeConfig& rope) {
  // The dimension whose wavelength turns `rotations` times within the original context.
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

  auto inverse = wavelengths(rope.theta, rope.dim);
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

RopeFrequencies llama3(const RopeConfig& rope) {
  const auto factor = static_cast<float>(rope.factor);
  const auto original = static_cast<double>(rope.original_max);
  const auto longest = static_cast<float>(original / rope.low_freq_factor);
  const auto shortest = static_cast<float>(original / rope.high_freq_factor);
  auto inverse = plain(rope.theta, rope.dim);
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

RopeFrequencies longrope(const RopeConfig& rope, std::int64_t length) {
  const auto& factors = length > rope.original_max ? rope.long_factor : rope.short_factor;
  auto inverse = wavelengths(rope.theta, rope.dim);
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

RopeFrequencies frequencies_of(const RopeConfig& rope, std::int64_t length) {
  switch (rope.type) {
    case RopeType::standard:
      return {plain(rope.theta, rope.dim), 1.0f};
    case RopeType::linear:
      return linear(rope);
    case RopeType::dynamic:
      return dynamic(rope, length);
    case RopeType::yarn:
      return yarn(rope);
    case RopeType::llama3:
      return llama3(rope);
    case RopeType::longrope:
      return longrope(rope, length);
  }
  assertion_failed("known rope type", __FILE__, __LINE__);
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t length) {
  return translate_exceptions([&] { return frequencies_of(rope, length); });
}

}  // namespace qkscope
