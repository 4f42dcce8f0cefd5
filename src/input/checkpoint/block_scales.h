// Block-wise quantized float8 weights: one scale per block of rows and columns.
#pragma once

#include <cstdint>
#include <vector>

#include "qkscope/tensor.h"

namespace qkscope {

// Returns the shape of the scale matrix for a weight of `shape` (rows, columns) and blocks of
// `block` (rows, columns). Rounds up: blocks at the bottom and right edge may be partial.
std::vector<std::int64_t> scales_shape(const std::vector<std::int64_t>& shape,
                                       const std::vector<std::int64_t>& block);

// Dequantizes float8 `values` (out, in) to float32 by multiplying every value with the scale of its
// block. `scales` may have any floating-point dtype and must have the shape scales_shape().
Tensor dequantize_float8(ConstTensorView values, ConstTensorView scales,
                         const std::vector<std::int64_t>& block);

}  // namespace qkscope
