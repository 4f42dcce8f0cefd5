// Pearson and Spearman correlation with p values that do not underflow.
#pragma once

#include <cstdint>
#include <span>

#include "qkscope/correlation.h"

namespace qkscope {

// Pearson correlation from centred sums over n rows: xy = sum x y, xx = sum x^2, yy = sum y^2.
Correlation correlation(double xy, double xx, double yy, std::int64_t n);

// Returns ln of the two-sided p value of r (Student's t with n - 2 degrees of freedom).
double log_p_of_correlation(double r, std::int64_t n);

// Returns E|r| of n independent rows, where r^2 is Beta(1/2, n/2 - 1).
double mean_abs_r_by_chance(std::int64_t n);

// Returns the t with the given two-sided p value under Student's t with `degrees` of freedom: 1.96
// for 0.05 and many degrees.
double student_t_quantile(double two_sided_p, std::int64_t degrees);

// Returns ln of the regularised incomplete beta function I_x(a, 1/2), given x and 1 - x.
double log_incomplete_beta_half(double a, double x, double one_minus_x);

struct PairCorrelation {
  std::int64_t n = 0;    // pairs without NaN
  Correlation pearson;   // NaN for fewer than three pairs
  Correlation spearman;  // ties have their mean rank; p from the same t distribution
};

// Correlates two lists of equal length; pairs with NaN are ignored.
PairCorrelation correlate(std::span<const double> x, std::span<const double> y);

}  // namespace qkscope
