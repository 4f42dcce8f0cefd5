// Parts of a matrix of weights as float32, whatever its type and the way it is stored.
#pragma once

#include <cstdint>

#include "qkscope/model.h"

namespace qkscope {

// Rows [first, first + rows), of each the values [begin, begin + depth).
struct WeightPart {
  std::int64_t first;
  std::int64_t rows;
  std::int64_t begin;
  std::int64_t depth;
};

// out (rows, depth) = that part of the matrix, times its scale.
void widen_rows(const WeightMatrix& matrix, const WeightPart& part, float* out);

}  // namespace qkscope
