// Pearson correlation and simple regression from sums, with p values that do not underflow.
#pragma once

#include <cstdint>

#include "qkscope/correlation.h"

namespace qkscope {

// From centred sums: xy = sum x y, xx = sum x^2, yy = sum y^2 over n rows.
Correlation correlation(double xy, double xx, double yy, std::int64_t n);

// ln of the two-sided p value of r under no correlation (t distribution with n - 2 degrees).
double log_p_of_correlation(double r, std::int64_t n);

// The mean of |r| over n rows that have nothing to do with each other (r^2 is Beta(1/2, n/2 - 1)).
double mean_abs_r_by_chance(std::int64_t n);

// The t at which a Student's t with `degrees` of freedom has this two-sided p value: 1.96 for 0.05
// and many degrees.
double student_t_quantile(double two_sided_p, std::int64_t degrees);

// ln of the regularised incomplete beta function I_x(a, 1/2), given x and 1 - x.
double log_incomplete_beta_half(double a, double x, double one_minus_x);

}  // namespace qkscope
