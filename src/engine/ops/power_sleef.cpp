// SLEEF's power function, as PyTorch uses it.

// SLEEF's header shows what has fused multiply-adds only to compilers that may use them anywhere;
// its library has it on every machine.
#ifndef FP_FAST_FMA
#define FP_FAST_FMA
#endif
#include <algorithm>

#include <sleef.h>

#include "base/core/cpu_target.h"
#include "engine/ops/rope_frequencies.h"

namespace qkscope {

float power(float base, float exponent) {
  static const bool fused = std::ranges::any_of(cpu_targets(), has_fused_multiply_add);
  return fused ? Sleef_powf1_u10purecfma(base, exponent) : Sleef_powf1_u10purec(base, exponent);
}

bool power_is_sleef() {
  return true;
}

}  // namespace qkscope
