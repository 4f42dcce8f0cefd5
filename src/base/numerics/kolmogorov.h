// The two-sided one-sample Kolmogorov-Smirnov test against the normal distribution, and Youden's J,
// the one-sided two-sample Kolmogorov-Smirnov statistic.
#pragma once

#include <cstdint>
#include <span>

namespace qkscope {

// Returns P(D_n >= d) of the Kolmogorov distribution for n independent draws, by the algorithm of
// Simard and L'Ecuyer (2011): Durbin's matrix for small n d, the one-sided sum in the upper tail,
// and the Pelz-Good expansion between.
double kolmogorov_p(std::int64_t n, double d);

// Returns the statistic D_n = sup |F_n - Phi| of the values (value - centre) * scale, in any order.
double kolmogorov_distance_to_normal(std::span<const double> values, double centre, double scale);

// Returns Youden's J = max over thresholds of (fraction of `upper` above the threshold - fraction
// of `lower` above it): 1 if a threshold separates the samples, 0 if none helps.
double youden_j(std::span<const double> upper, std::span<const double> lower);

}  // namespace qkscope
