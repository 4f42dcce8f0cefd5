// Numeric helpers: NaN for missing float64 results, tests for NaN and infinity, and conversions of
// signed counts.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace qkscope {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline bool all_nan(std::span<const double> values) {
  return std::ranges::all_of(values, [](double value) { return std::isnan(value); });
}

// NaN and infinity have the largest exponent: the maximum of the magnitude bits reveals them.
inline bool all_finite(std::span<const float> values) {
  std::uint32_t largest = 0;
  for (const float value : values)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU);
  return largest < 0x7F800000U;
}

constexpr std::size_t as_index(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

constexpr double to_double(std::integral auto number) {
  return static_cast<double>(number);
}

}  // namespace qkscope
