// RoPE's frequencies (rope_frequencies in qkscope/model.h) and the power function behind them.
// rope_frequencies.cpp computes them; the power function is in power_sleef.cpp or, without SLEEF,
// in power_rounded.cpp.
#pragma once

#include "qkscope/model.h"

namespace qkscope {

// base^exponent in float32. PyTorch takes SLEEF's function for it, which is not always the
// correctly rounded one: at position 131,072 one unit in the last place of a frequency is up to
// 0.008 rad. With SLEEF at build time this gives PyTorch's bits; without, the correctly rounded
// value.
float power(float base, float exponent);

// Whether power() is SLEEF's.
bool power_is_sleef();

}  // namespace qkscope
