// The normal distribution and related special functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

namespace qkscope {

// Returns the standard normal CDF Phi(z), with full relative accuracy in the lower tail.
inline double normal_cdf(double z) {
  return 0.5 * std::erfc(-z * (1 / std::numbers::sqrt2));
}

// Returns ln |Gamma(x)|. Thread-safe, unlike std::lgamma, which writes the global signgam.
inline double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

// Table of z scores of up to kMostLanes key pairs, one pair per SIMD lane, for linear
// interpolation: z[c] + fraction (z[c + 1] - z[c]) between columns c and c + 1, or z[c] after the
// last column c.
inline constexpr std::int64_t kLaneStep = 4;
inline constexpr std::int64_t kMostLanes = 16;
struct ZScoreTable {
  const float* z;              // (columns, lanes): no NaN
  std::int64_t columns;        // count: those of the points, and the next one if it exists
  std::int64_t lanes;          // key pairs: a multiple of kLaneStep, at most kMostLanes
  std::int32_t first_column;   // column number of the first row of z
  const std::int32_t* column;  // (query points): column before the point, ascending
  const float* fraction;       // (points)
};
// Range of queries to evaluate; SIMD lane i includes only [lane_first[i], lane_end[i]).
struct QueryRangesPerSimdLane {
  std::int32_t first = 0;
  std::int32_t end = 0;
  std::int32_t lane_first[kMostLanes] = {};
  std::int32_t lane_end[kMostLanes] = {};
};
// Computes the plasticity 4 p (1 - p) with p = Phi(z): 1 for a coin flip, 0 for a certain choice.
// Points that a lane excludes contribute 0. The absolute error is below 1e-6. Values are integer
// multiples of kPlasticityUnit, so that sums are exact.
// running (end - first + 1, lanes) = prefix sums over the points, modulo 2^32: the difference of
// two rows is exact if they are at most kMostPoints rows apart.
// total (end - first) = sums over the lanes.
inline constexpr double kPlasticityUnit = 1.0 / (1 << 24);
inline constexpr std::int32_t kMostPoints = 255;
void accumulate_plasticity(const ZScoreTable& lines, const QueryRangesPerSimdLane& points,
                           std::uint32_t* running, std::uint32_t* total);

// Replaces every z >= 0 by erfc(z). Values above 26.5 are clamped (erfc is about 1e-307 there).
void erfc_in_place(std::span<double> z);

}  // namespace qkscope
