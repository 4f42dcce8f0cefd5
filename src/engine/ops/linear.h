// Linear layers y = x Wᵀ + b: float32 arithmetic, weights in their stored type; and the conversion
// of stored weights to float32.
#pragma once

#include <cstdint>
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

// Rows [first, first + rows) and columns [begin, begin + depth) of a matrix.
struct WeightPart {
  std::int64_t first;
  std::int64_t rows;
  std::int64_t begin;
  std::int64_t depth;
};

// out (rows, depth) = a part of the matrix in float32, with the scale applied.
void widen_rows(const WeightMatrix& matrix, const WeightPart& part, float* out);

// Returns a view of the same memory, `offset` elements later, with another shape and other strides.
inline ConstTensorView strided_view(ConstTensorView v, std::int64_t offset, const Shape& shape,
                                    const Shape& strides) {
  const auto element = static_cast<std::int64_t>(dtype_size(v.dtype()));
  return {v.bytes() + offset * element, v.dtype(), shape, strides, v.device()};
}

}  // namespace qkscope
