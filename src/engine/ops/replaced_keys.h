// Keys of one head and document as a quantised or pruned KV cache would store them, to measure the
// KL divergence of attention. Inputs are `count` keys of `depth` components.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/core/numbers.h"
#include "engine/ops/gemm.h"
#include "qkscope/statistics.h"

namespace qkscope {

inline constexpr float kLargestFp8 = 448.0f;

// Rounds to FP8 E4M3, ties to even: 3 mantissa bits down to 2^-6, steps of 2^-9 below.
inline float round_to_e4m3(float value) {
  const float magnitude = std::min(std::fabs(value), kLargestFp8);
  if (magnitude == 0.0f) return 0.0f;
  const int exponent = std::max(std::ilogb(magnitude), -6);
  const float step = std::ldexp(1.0f, exponent - 3);
  const float rounded = std::min(std::nearbyint(magnitude / step) * step, kLargestFp8);
  return std::copysign(rounded, value);
}

// Quantises and dequantises values that share one scale: absmax / 448 for FP8, (max - min) / 255
// for int8, (max - min) / 15 for int4.
inline void fake_quantize(const std::vector<float*>& shared, KeyReplacement::Scheme scheme) {
  float low = *shared.front();
  float high = low;
  for (const auto* value : shared) {
    low = std::min(low, *value);
    high = std::max(high, *value);
  }
  if (scheme == KeyReplacement::Scheme::fp8) {
    const float scale = std::max(-low, high) / kLargestFp8;
    if (scale == 0.0f) return;
    for (auto* value : shared) *value = round_to_e4m3(*value / scale) * scale;
    return;
  }
  const float steps = scheme == KeyReplacement::Scheme::int8 ? 255.0f : 15.0f;
  const float scale = (high - low) / steps;
  if (scale == 0.0f) return;
  for (auto* value : shared) *value = std::nearbyint((*value - low) / scale) * scale + low;
}

// Returns a mask (keys), 1 for the given fraction of keys that have the smallest dot product with
// `filter` (dim) or, if `filter` is null, the smallest L2 norm. Ties go to the lower index. The
// negative dot product is the Q-filter score of kvpress.
inline std::vector<float> kept_key_mask(const gemm::StridedVectors& keys, const float* filter,
                                        double share) {
  std::vector<double> value(as_index(keys.count));
  for (std::int64_t j = 0; j < keys.count; ++j) {
    const float* key = keys.values + j * keys.stride;
    value[as_index(j)] =
        std::inner_product(key, key + keys.depth, filter != nullptr ? filter : key, 0.0);
  }
  std::vector<std::int64_t> order(as_index(keys.count));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::int64_t key) { return value[as_index(key)]; });
  const auto count = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(keys.count)));
  std::vector<float> mask(as_index(keys.count));
  for (std::int64_t i = 0; i < std::min(count, keys.count); ++i)
    mask[as_index(order[as_index(i)])] = 1;
  return mask;
}

// Returns the keys quantised and dequantised, shape (rows, dim). Keys with Scale::exported are
// rounded to FP8 E4M3 with the scale `exported` and saturate at 448 * exported.
inline std::vector<float> fake_quantize_keys(const gemm::StridedVectors& keys,
                                             const KeyReplacement& replacement,
                                             float exported = 0.0f) {
  using Scale = KeyReplacement::Scale;
  std::vector<float> replaced;
  for (std::int64_t j = 0; j < keys.count; ++j)
    replaced.insert(replaced.end(), keys.values + j * keys.stride,
                    keys.values + j * keys.stride + keys.depth);
  const auto scale = replacement.scale;
  if (scale == Scale::exported) {
    for (float& value : replaced) value = round_to_e4m3(value / exported) * exported;
    return replaced;
  }
  // Numbers of keys and of channels that share a scale.
  const auto rows = scale == Scale::head || scale == Scale::channel ? keys.count : 1;
  const auto channels = scale == Scale::channel ? 1
                        : scale == Scale::group ? replacement.group
                                                : keys.depth;
  for (std::int64_t row = 0; row < keys.count; row += rows)
    for (std::int64_t channel = 0; channel < keys.depth; channel += channels) {
      std::vector<float*> shared;
      for (auto r = row; r < row + rows; ++r)
        for (auto c = channel; c < std::min(keys.depth, channel + channels); ++c)
          shared.push_back(replaced.data() + r * keys.depth + c);
      fake_quantize(shared, replacement.scheme);
    }
  return replaced;
}

}  // namespace qkscope
