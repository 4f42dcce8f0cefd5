// SLEEF's power function, as PyTorch uses it.
#include <sleef.h>

#include "ops/rope_frequencies.h"

namespace qkscope {

float power(float base, float exponent) {
  return Sleef_powf1_u10purecfma(base, exponent);
}

bool power_is_sleef() {
  return true;
}

}  // namespace qkscope
