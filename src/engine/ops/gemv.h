// Products of a few rows of x with weights in their stored layout, as in token-by-token generation.
// Weights are read once and not packed, because memory bandwidth is the bottleneck. Every element
// has the bits of gemm.h: one FMA chain in ascending order, split at gemm::depth_block.
#pragma once

#include <cstdint>

#include "qkscope/model.h"

namespace qkscope::gemv {

// Largest number of rows for which this is faster than packing.
inline constexpr std::int64_t kMostRows = 8;
// Tasks should begin at multiples of this many outputs.
inline constexpr std::int64_t kGroup = 32;

// Operands of y = x weightᵀ.
struct Product {
  const float* x;     // (rows, in), contiguous
  std::int64_t rows;  // at most kMostRows
  const WeightMatrix& weight;
  float* y;  // (rows, out)
  std::int64_t y_stride;
};

// Computes outputs [first, first + count) of every row.
void multiply(const Product& product, std::int64_t first, std::int64_t count);

}  // namespace qkscope::gemv
