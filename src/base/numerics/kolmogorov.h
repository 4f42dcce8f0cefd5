// The two-sided one-sample Kolmogorov-Smirnov test against the standard normal.
#pragma once

#include <cstdint>
#include <span>

namespace qkscope {

// P(D_n >= d) for the two-sided statistic of n independent draws. By Simard and L'Ecuyer's plan:
// Durbin's matrix where it is small, the one-sided sum in the upper tail, Pelz and Good's expansion
// between.
double kolmogorov_p(std::int64_t n, double d);

// The statistic D_n = sup |F_n - Phi| of (value - centre) scale. Scratch-free apart from O(n)
// memory; the order of the values does not matter.
double kolmogorov_distance_to_normal(std::span<const double> values, double centre, double scale);

}  // namespace qkscope
