#include <sleef.h>

#include "ops/power.h"

namespace qkscope {

float power(float base, float exponent) {
  return Sleef_powf1_u10purecfma(base, exponent);
}

bool power_is_sleef() {
  return true;
}

}  // namespace qkscope
