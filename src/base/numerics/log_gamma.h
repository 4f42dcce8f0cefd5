// ln |Gamma(x)| for several threads at once: std::lgamma gives the same numbers, but leaves a sign
// in a global variable.
#pragma once

#include <cmath>

namespace qkscope {

inline double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

}  // namespace qkscope
