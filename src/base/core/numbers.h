// Numeric helpers: NaN for missing float64 results, and conversions of signed counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace qkscope {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr std::size_t as_index(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

constexpr double to_double(std::int64_t number) {
  return static_cast<double>(number);
}

}  // namespace qkscope
