// The normal distribution and related special functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

namespace qkscope {

// Returns Phi(z), with full relative accuracy in the lower tail.
inline double normal_cdf(double z) {
  return 0.5 * std::erfc(-z * (1 / std::numbers::sqrt2));
}

// ln |Gamma(x)|. Thread-safe, unlike std::lgamma, which writes the global signgam.
inline double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

// Lines z(shift) = start + slope * shift, and points [first, end) on them. Points of one line are
// consecutive and have ascending shifts.
struct ZLines {
  const float* start;            // (lines)
  const float* slope;            // (lines)
  std::int32_t first_line;       // line number of start[0]
  const std::int32_t* line;      // (points): line number
  const std::int32_t* line_end;  // (points): index of the first point of the next line
  const float* shift;            // (points and kAlongPadding)
  std::int64_t first;
  std::int64_t end;
};
// out (end - first) = plasticity 4 p (1 - p) with p = Phi(z): 1 for a coin flip, 0 for a certain
// choice. The absolute error is below 1e-6. Overwrites up to kAlongPadding numbers behind `out`.
inline constexpr std::int64_t kAlongPadding = 4;
void plasticity_along(const ZLines& lines, float* out);

// Replaces every z >= 0 by erfc(z). Values above 26.5 are clamped (erfc is about 1e-307 there).
void erfc_in_place(std::span<double> z);

}  // namespace qkscope
