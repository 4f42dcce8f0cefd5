// What describes a handful of numbers. Of nothing they are NaN.
#pragma once

#include <span>
#include <vector>

namespace qkscope {

double mean_of(const std::vector<double>& values);
double deviation_of(const std::vector<double>& values);  // ddof 1; NaN of one value
// Linear between neighbours, as numpy does it.
double quantile_of(std::vector<double> values, double fraction);
// Sums of the products around the means of two lists of the same length.
struct CentredProducts {
  double xx = 0;
  double xy = 0;
  double yy = 0;
};
CentredProducts centred_products(std::span<const double> x, std::span<const double> y);
// Pearson's r; NaN below two values or without spread.
double correlation_of(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace qkscope
