// Power function of SLEEF, as used by PyTorch.

// sleef.h declares FMA variants only if FP_FAST_FMA is defined; the library always has them.
#ifndef FP_FAST_FMA
#define FP_FAST_FMA
#endif
#include <algorithm>

#include <sleef.h>

#include "base/core/cpu_target.h"
#include "engine/ops/rotary.h"

namespace qkscope {

float power(float base, float exponent) {
  static const bool fused = std::ranges::any_of(cpu_targets(), has_fused_multiply_add);
  return fused ? Sleef_powf1_u10purecfma(base, exponent) : Sleef_powf1_u10purec(base, exponent);
}

bool power_is_sleef() {
  return true;
}

}  // namespace qkscope
