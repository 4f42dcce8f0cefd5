// Correctly rounded power function, for builds without SLEEF.
#include <cmath>

#include "engine/ops/rotary.h"

namespace qkscope {

float power(float base, float exponent) {
  return static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
}

bool power_is_sleef() {
  return false;
}

}  // namespace qkscope
