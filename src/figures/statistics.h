// Summaries of a number over heads. Of nothing they are NaN.
#pragma once

#include <vector>

namespace qkscope {

double mean_of(const std::vector<double>& values);
double deviation_of(const std::vector<double>& values);           // ddof 1; NaN of one value
double quantile_of(std::vector<double> values, double fraction);  // between neighbours linear

}  // namespace qkscope
