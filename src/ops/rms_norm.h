// y = x / sqrt(mean(x²) + eps) * weight, over the last dimension.
#pragma once

#include <span>

#include "qkscope/tensor.h"

namespace qkscope {

// x and y (rows, n) or (rows, heads, n), float32, contiguous; they may be the same memory.
void rms_norm(ConstTensorView x, std::span<const float> weight, double eps, TensorView y);

}  // namespace qkscope
