// Linear layers y = x Wᵀ + b: float32 arithmetic, weights in their stored type.
#pragma once

#include <initializer_list>

#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// x (rows, in), y (rows, out), both float32 with contiguous rows. A row of y depends on the same
// row of x alone; its bits depend neither on the number of rows nor on the number of threads.
void linear(ConstTensorView x, const Linear& layer, TensorView y);
void linear(ConstTensorView x, const WeightMatrix& weight, TensorView y);

// Computes several layers of one input, which is packed only once.
struct Projection {
  const Linear& layer;
  TensorView y;
};
void linear(ConstTensorView x, std::initializer_list<Projection> projections);

// Limit of weights packed for all threads together, in floats: 64 MiB.
inline constexpr std::int64_t kMostSharedWeights = std::int64_t{1} << 24;

}  // namespace qkscope
