// Rotary position embedding (RoPE) of q and k; rope_frequencies is declared in qkscope/model.h.
#pragma once

#include <span>

#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Cosines and sines of all rows of a batch.
struct RotaryTable {
  Tensor cos;  // (rows, dim / 2), attention factor included
  Tensor sin;  // (rows, dim / 2), attention factor included
};

// Computes the table of a batch. Angles are float32 position times float32 inverse frequency;
// frequencies are per sequence if they depend on the length.
RotaryTable rotary_table(const RopeConfig& rope, std::span<const Sequence> sequences);

// Rotates the first `dim` components of every head of x (rows, heads, d_head) in place. Pairs are
// (i, i + dim/2), or (2i, 2i+1) if interleaved.
void apply_rotary(const RotaryTable& table, bool interleaved, TensorView x);

// Returns base^exponent in float32. PyTorch uses SLEEF, which is not always correctly rounded: at
// position 131,072 one ULP of a frequency is up to 0.008 rad. Builds with SLEEF are bit-identical
// to PyTorch; other builds round correctly.
float power(float base, float exponent);

// Returns true if power() is SLEEF's.
bool power_uses_sleef();

}  // namespace qkscope
