// y = x Wᵀ + b, float32 arithmetic, weights in their stored type.
#pragma once

#include <initializer_list>

#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// x (rows, in), y (rows, out), both float32 with contiguous rows. A row of y depends on the same
// row of x alone: neither the number of rows nor the number of threads changes a bit of it.
void linear(ConstTensorView x, const Linear& layer, TensorView y);
void linear(ConstTensorView x, const WeightMatrix& weight, TensorView y);

// Several layers of one input at once, which is read and packed once for all.
struct Projection {
  const Linear& layer;
  TensorView y;
};
void linear(ConstTensorView x, std::initializer_list<Projection> projections);

// Weights that are packed for all threads together are no more floats than these: 64 MiB.
inline constexpr std::int64_t kMostSharedWeights = std::int64_t{1} << 24;

}  // namespace qkscope
