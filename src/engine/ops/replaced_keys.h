// Keys as a quantised or pruned KV cache would store them, to measure the KL divergence.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "qkscope/statistics.h"

namespace qkscope {

// Keys of one head and document, shape (rows, dim).
struct KeyRows {
  const float* values;  // row j at values + j * stride
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t dim;
};

inline constexpr float kLargestFp8 = 448.0f;

// Rounds to FP8 E4M3, ties to even: 3 mantissa bits down to 2^-6, steps of 2^-9 below.
inline float round_to_fp8(float value) {
  const float magnitude = std::min(std::fabs(value), kLargestFp8);
  if (magnitude == 0.0f) return 0.0f;
  const int exponent = std::max(std::ilogb(magnitude), -6);
  const float step = std::ldexp(1.0f, exponent - 3);
  const float rounded = std::min(std::nearbyint(magnitude / step) * step, kLargestFp8);
  return std::copysign(rounded, value);
}

// Quantises and dequantises values that share one scale: absmax / 448 for FP8, the range from
// minimum to maximum in 255 or 15 steps for int8 and int4.
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
    for (auto* value : shared) *value = round_to_fp8(*value / scale) * scale;
    return;
  }
  const float steps = scheme == KeyReplacement::Scheme::int8 ? 255.0f : 15.0f;
  const float scale = (high - low) / steps;
  if (scale == 0.0f) return;
  for (auto* value : shared) *value = std::nearbyint((*value - low) / scale) * scale + low;
}

// Mask: 1 for the given fraction of keys with the smallest value; ties go to the lower index.
template <typename Value>
std::vector<float> mask_of_smallest_keys(const KeyRows& keys, double share, Value value_of) {
  std::vector<double> value(as_index(keys.rows));
  for (std::int64_t j = 0; j < keys.rows; ++j)
    value[as_index(j)] = value_of(keys.values + j * keys.stride);
  std::vector<std::int64_t> order(as_index(keys.rows));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::int64_t key) { return value[as_index(key)]; });
  const auto count = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(keys.rows)));
  std::vector<float> chosen(as_index(keys.rows));
  for (std::int64_t i = 0; i < std::min(count, keys.rows); ++i)
    chosen[as_index(order[as_index(i)])] = 1;
  return chosen;
}

// Returns the keys quantised and dequantised, shape (rows, dim).
inline std::vector<float> replace_keys(const KeyRows& keys, const KeyReplacement& replacement) {
  std::vector<float> replaced(as_index(keys.rows * keys.dim));
  for (std::int64_t j = 0; j < keys.rows; ++j)
    std::copy_n(keys.values + j * keys.stride, keys.dim, replaced.data() + j * keys.dim);
  const auto block = [&](std::int64_t row, std::int64_t rows, std::int64_t column,
                         std::int64_t columns) {
    std::vector<float*> shared;
    for (auto r = row; r < row + rows; ++r)
      for (auto c = column; c < std::min(keys.dim, column + columns); ++c)
        shared.push_back(replaced.data() + r * keys.dim + c);
    fake_quantize(shared, replacement.scheme);
  };
  using Scale = KeyReplacement::Scale;
  switch (replacement.scale) {
    case Scale::head:
      block(0, keys.rows, 0, keys.dim);
      break;
    case Scale::channel:
      for (std::int64_t c = 0; c < keys.dim; ++c) block(0, keys.rows, c, 1);
      break;
    case Scale::token:
      for (std::int64_t r = 0; r < keys.rows; ++r) block(r, 1, 0, keys.dim);
      break;
    case Scale::group:
      for (std::int64_t r = 0; r < keys.rows; ++r)
        for (std::int64_t c = 0; c < keys.dim; c += replacement.group)
          block(r, 1, c, replacement.group);
      break;
    case Scale::exported:
      QKSCOPE_ASSERT(false);  // exported scales need round_to_fp8()
  }
  return replaced;
}

// Returns the keys (rows, dim) rounded to FP8 E4M3 with a given scale, saturating at 448 * scale.
inline std::vector<float> round_to_fp8(const KeyRows& keys, float scale) {
  std::vector<float> rounded;
  for (std::int64_t j = 0; j < keys.rows; ++j)
    for (std::int64_t c = 0; c < keys.dim; ++c)
      rounded.push_back(round_to_fp8(keys.values[j * keys.stride + c] / scale) * scale);
  return rounded;
}

// Shape (rows). Mask: 1 for the given fraction of keys with the smallest L2 norm.
inline std::vector<float> mask_of_shortest_keys(const KeyRows& keys, double share) {
  return mask_of_smallest_keys(keys, share, [&](const float* key) {
    return std::inner_product(key, key + keys.dim, key, 0.0);
  });
}

// Shape (rows). Mask: 1 for the given fraction of keys with the best Q-filter score, the largest
// -(filter . key) as in kvpress. filter: (dim).
inline std::vector<float> mask_of_filtered_keys(const KeyRows& keys, const float* filter,
                                                double share) {
  return mask_of_smallest_keys(keys, share, [&](const float* key) {
    return std::inner_product(key, key + keys.dim, filter, 0.0);
  });
}

}  // namespace qkscope
