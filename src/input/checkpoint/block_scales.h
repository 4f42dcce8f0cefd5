// Float8 weights with a scale for each block of rows and columns.
#pragma once

#include <cstdint>
#include <vector>

#include "qkscope/tensor.h"

namespace qkscope {

// Scales of a matrix of `shape`, one for each block of `block` (rows, columns): rounded up, so that
// blocks at the lower and right edge may be smaller.
std::vector<std::int64_t> scales_shape(const std::vector<std::int64_t>& shape,
                                       const std::vector<std::int64_t>& block);

// Each value times the scale of its block, in float32. `values` are float8 [out, in], `scales` of
// any floating type; the shapes fit.
Tensor widen_scaled(ConstTensorView values, ConstTensorView scales,
                    const std::vector<std::int64_t>& block);

}  // namespace qkscope
