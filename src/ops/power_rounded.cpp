#include <cmath>

#include "ops/power.h"

namespace qkscope {

float power(float base, float exponent) {
  return static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
}

bool power_is_sleef() {
  return false;
}

}  // namespace qkscope
