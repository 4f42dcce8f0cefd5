// The normal distribution: scalar with full relative accuracy, and over arrays at vector speed.
#pragma once

#include <cmath>
#include <numbers>
#include <span>

namespace qkscope {

// Phi(z) with relative accuracy also far in the lower tail.
inline double normal_cdf(double z) {
  return 0.5 * std::erfc(-z * (1 / std::numbers::sqrt2));
}

// z[i] becomes 4 p (1 - p) with p = Phi(z[i]): 1 for a coin flip, 0 for a certain choice.
void plasticity_of(std::span<double> z);

// z[i] becomes erfc(z[i]); z[i] >= 0. Values past 26.5 count as 26.5 (about 1e-307).
void erfc_in_place(std::span<double> z);

}  // namespace qkscope
