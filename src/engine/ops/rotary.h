// Rotary position embedding on q and k.
#pragma once

#include <span>

#include "engine/ops/sequence.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

struct RotaryTable {
  Tensor cos;  // (rows, dim / 2), attention factor included
  Tensor sin;  // (rows, dim / 2), attention factor included
};

// Angles are float32 position times float32 inverse frequency; each sequence has its own
// frequencies where they depend on the length.
RotaryTable rotary_table(const RopeConfig& rope, std::span<const Sequence> sequences);

// Turns the first dim components of every head of x (rows, heads, d_head) in place. Pairs are
// (i, i + dim/2), or (2i, 2i+1) when interleaved.
void apply_rotary(const RotaryTable& table, bool interleaved, TensorView x);

}  // namespace qkscope
