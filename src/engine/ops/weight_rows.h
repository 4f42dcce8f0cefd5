// Conversion of parts of a weight matrix to float32, from any stored type and layout.
#pragma once

#include <cstdint>

#include "qkscope/model.h"

namespace qkscope {

// Rows [first, first + rows) and columns [begin, begin + depth) of a matrix.
struct WeightPart {
  std::int64_t first;
  std::int64_t rows;
  std::int64_t begin;
  std::int64_t depth;
};

// out (rows, depth) = that part of the matrix in float32, with the scale applied.
void widen_rows(const WeightMatrix& matrix, const WeightPart& part, float* out);

// Returns a view of the same memory, `offset` elements later, with another shape and other strides.
inline ConstTensorView strided_view(ConstTensorView v, std::int64_t offset, const Shape& shape,
                                    const Shape& strides) {
  const auto element = static_cast<std::int64_t>(dtype_size(v.dtype()));
  return {v.bytes() + offset * element, v.dtype(), shape, strides, v.device()};
}

}  // namespace qkscope
