// Descriptive statistics of small samples, NaN for empty ones; Pearson and Spearman correlation
// with p values that do not underflow; tests of normality, including the Kolmogorov-Smirnov test
// against the normal distribution; Youden's J.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/matrix.h"
#include "qkscope/correlation.h"

namespace qkscope {

double mean_of(const std::vector<double>& values);
double standard_deviation_of(const std::vector<double>& values);  // ddof 1; NaN for one value
// Quantile with linear interpolation, like numpy.quantile.
double quantile_of(std::vector<double> values, double fraction);
// Pearson's r; NaN for fewer than two values or a constant list.
double pearson_r(const std::vector<double>& x, const std::vector<double>& y);

// Tests of normality of a sample.
struct NormalityStatistics {
  double skew = 0;             // bias-corrected; NaN for fewer than 3 values
  double excess_kurtosis = 0;  // bias-corrected; NaN for fewer than 4 values
  double ks_p = 0;             // two-sided Kolmogorov-Smirnov test after standardising (ddof 1)
};

// Computes skewness, kurtosis and the KS test of `values`, given their power sums around 0. All
// results are NaN for constant values.
NormalityStatistics measure_normality(std::span<const double> values, PowerSums sums);

// Returns the median, ignoring NaNs, or NaN if there are no other values. Reorders the values.
double median(std::span<double> values);

// Pearson correlation from centred sums over n rows: xy = sum x y, xx = sum x^2, yy = sum y^2.
Correlation correlation(double xy, double xx, double yy, std::int64_t n);

// Returns ln of the two-sided p value of r (Student's t with n - 2 degrees of freedom).
double log_p_value_of_correlation(double r, std::int64_t n);

// Returns the mean |r| of independent variables over n rows, where r^2 is Beta(1/2, n/2 - 1).
double expected_abs_r_under_null(std::int64_t n);

// Returns the t with the given two-sided p value under Student's t with `degrees` of freedom: 1.96
// for 0.05 and many degrees.
double student_t_critical_value(double two_sided_p, std::int64_t degrees);

struct CorrelationCoefficients {
  std::int64_t n = 0;    // pairs without NaN
  Correlation pearson;   // NaN for fewer than three pairs
  Correlation spearman;  // ties have their mean rank; p from the same t distribution
};

// Correlates two lists of equal length; pairs with NaN are ignored.
CorrelationCoefficients correlate_pairs(std::span<const double> x, std::span<const double> y);

// Returns P(D_n >= d) of the Kolmogorov distribution for n independent draws, by the algorithm of
// Simard and L'Ecuyer (2011): Durbin's matrix for small n d, the one-sided sum in the upper tail,
// and the Pelz-Good expansion between.
double kolmogorov_p_value(std::int64_t n, double d);

// Returns the statistic D_n = sup |F_n - Phi| of the values (value - centre) * scale, in any order.
double kolmogorov_distance_to_normal(std::span<const double> values, double centre, double scale);

// Returns Youden's J = max over thresholds of (fraction of `upper` above the threshold - fraction
// of `lower` above it): 1 if a threshold separates the samples, 0 if none helps.
double youden_j(std::span<const double> upper, std::span<const double> lower);

}  // namespace qkscope
