// Descriptive statistics of small samples, NaN for empty ones, and tests of normality.
#pragma once

#include <span>
#include <vector>

#include "base/numerics/vectors.h"

namespace qkscope {

double mean_of(const std::vector<double>& values);
double standard_deviation_of(const std::vector<double>& values);  // ddof 1; NaN for one value
// Quantile with linear interpolation, like numpy.quantile.
double quantile_of(std::vector<double> values, double fraction);
// Sums of products around the means of two lists of equal length.
struct CentredProducts {
  double xx = 0;
  double xy = 0;
  double yy = 0;
};
CentredProducts centred_products(std::span<const double> x, std::span<const double> y);
// Pearson's r; NaN for fewer than two values or a constant list.
double correlation_of(const std::vector<double>& x, const std::vector<double>& y);

// Tests of normality of a sample.
struct NormalityStatistics {
  double skew = 0;             // bias-corrected; NaN for fewer than 3 values
  double excess_kurtosis = 0;  // bias-corrected; NaN for fewer than 4 values
  double ks_p = 0;             // two-sided Kolmogorov-Smirnov test after standardising (ddof 1)
};

// `sums`: power sums of the values around 0. All results are NaN for constant values.
NormalityStatistics measure_normality(std::span<const double> values, PowerSums sums);

// Returns the median, ignoring NaNs, or NaN if there are no other values. Reorders the values.
double median(std::span<double> values);

}  // namespace qkscope
