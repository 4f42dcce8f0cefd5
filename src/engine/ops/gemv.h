// Products of a few rows of x with weights as they are stored: what a step of generating is made
// of. The weights are read once, and nothing is packed: with so few rows their way from memory is
// all that counts. Every element has the bits that gemm.h gives it: one chain of fused
// multiply-adds in ascending order, cut where gemm::stretch says.
#pragma once

#include <cstdint>

#include "qkscope/model.h"

namespace qkscope::gemv {

// Rows of x from which on packing pays.
inline constexpr std::int64_t kMostRows = 8;
// Outputs are computed some at a time: tasks should begin at multiples of this many.
inline constexpr std::int64_t kGroup = 32;

struct Product {
  const float* x;     // (rows, in), contiguous
  std::int64_t rows;  // up to kMostRows
  const WeightMatrix& weight;
  float* y;  // (rows, out)
  std::int64_t y_stride;
};

// Outputs [first, first + count) of every row.
void multiply(const Product& product, std::int64_t first, std::int64_t count);

}  // namespace qkscope::gemv
