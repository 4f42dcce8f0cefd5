// Youden's J statistic of two samples.
#pragma once

#include <span>

namespace qkscope {

// Returns Youden's J = max over thresholds of (fraction of `upper` above the threshold - fraction
// of `lower` above it): 1 if a threshold separates the samples, 0 if none helps.
double youden_j(std::span<const double> upper, std::span<const double> lower);

}  // namespace qkscope
