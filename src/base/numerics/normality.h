// How far a sample is from a normal distribution.
#pragma once

#include <span>

#include "base/numerics/vectors.h"

namespace qkscope {

struct Normality {
  double skew = 0;             // bias-corrected; NaN below 3 values
  double excess_kurtosis = 0;  // bias-corrected; NaN below 4 values
  double ks_p =
      0;  // two-sided Kolmogorov-Smirnov against the normal after standardising (mean 0, ddof 1)
};

// `sums`: of the powers of the values, around 0. All NaN when they do not vary.
Normality normality_of(std::span<const double> values, PowerSums sums);

double median(std::span<double> values);  // reorders them; NaNs are left out; NaN when none is left

}  // namespace qkscope
