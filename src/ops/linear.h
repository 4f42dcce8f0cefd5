// y = x Wᵀ + b, float32 arithmetic, weights in their stored type.
#pragma once

#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// x (rows, in), y (rows, out), both float32 with contiguous rows. A row of y depends on the same
// row of x alone: neither the number of rows nor the number of threads changes a bit of it.
void linear(ConstTensorView x, const Linear& layer, TensorView y);
void linear(ConstTensorView x, const WeightMatrix& weight, TensorView y);

}  // namespace qkscope
