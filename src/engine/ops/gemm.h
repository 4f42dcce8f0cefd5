// Products of small packed float32 blocks, the core of linear layers and attention.
//
// Why not a BLAS: every element of the result is one chain of fused multiply-adds in ascending
// order of the summed index, independent of the number of rows and columns. So the result of a
// token does not depend on the other tokens of the batch, and is the same on every CPU with FMA.
// BLAS libraries choose kernels by problem size and give no such guarantee.
#pragma once

#include <cstdint>

#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope::gemm {

// Register tile. The shape depends on the CPU target; results are bit-identical for every shape.
struct TileShape {
  std::int64_t rows;
  std::int64_t columns;
};
TileShape tile_shape();

// Returns the smallest multiple of `unit` that is not below `value`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Long sums are split into equal blocks of at most kMaxDepth and continued from the stored partial
// result. Returns the block length, which depends only on `depth`.
inline constexpr std::int64_t kMaxDepth = 640;
constexpr std::int64_t depth_block_size(std::int64_t depth) {
  const auto count = (depth + kMaxDepth - 1) / kMaxDepth;
  return count <= 1 ? depth : round_up((depth + count - 1) / count, 4);
}

template <typename Body>
void for_each_depth_block(std::int64_t depth, Body body) {
  for (std::int64_t k = 0; k < depth; k += depth_block_size(depth))
    body(k, depth - k < depth_block_size(depth) ? depth - k : depth_block_size(depth));
}

// `count` vectors of `depth` elements: rows of a left operand or columns of a right operand.
struct StridedVectors {
  const float* values;
  std::int64_t stride;
  std::int64_t count;
  std::int64_t depth;
  bool transposed = false;
};
// Packs vectors stored one after another (element k of vector i at values[i * stride + k]) or
// transposed (at values[k * stride + i]) into round_up(count, tile size) * depth floats,
// zero-padded. The tile size is tile_shape().rows for left and .columns for right sides.
void pack_left_operand(const StridedVectors& rows, float* packed);
void pack_right_operand(const StridedVectors& columns, float* packed);

struct PackedOperands {
  const float* left;
  const float* right;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  std::int64_t left_depth = depth;  // depth that the left side was packed for, at least `depth`
  std::int64_t used = columns;      // columns of c that are needed; later ones may stay unwritten
};
// Matrix product c (rows, columns) = left * right, or += if `add`; rows of c are c_stride apart.
void multiply(const PackedOperands& product, bool add, float* c, std::int64_t c_stride);

// Measures the FLOP/s of all threads on data in L1, an upper bound for matrix products.
double measure_peak_flop_rate(double seconds);

}  // namespace qkscope::gemm

// Products of a few rows of x with weights in their stored layout, as in token-by-token generation.
// Weights are read once and not packed, because memory bandwidth is the bottleneck. Every element
// is bit-identical to gemm::multiply().
namespace qkscope::gemv {

// Largest number of rows for which gemv is faster than a product with packed operands.
inline constexpr std::int64_t kMostRows = 8;
// Number of output columns computed together; work is split among threads at multiples of it.
inline constexpr std::int64_t kGroup = 32;

// Operands of y = x weightᵀ.
struct GemvOperands {
  const float* x;     // (rows, in), contiguous
  std::int64_t rows;  // at most kMostRows
  const WeightMatrix& weight;
  float* y;  // (rows, out)
  std::int64_t y_stride;
};

// Computes the output columns [first, first + count) of every row.
void multiply(const GemvOperands& product, std::int64_t first, std::int64_t count);

}  // namespace qkscope::gemv

namespace qkscope {

// Scratch memory for packed blocks that only grows: a pass needs the same few sizes repeatedly.
class ScratchFloats {
 public:
  // Returns at least `count` floats, 64-byte aligned; the previous content is lost.
  float* reserve(std::int64_t count) {
    if (memory_.empty() || memory_.size() < count) memory_ = Tensor({count});
    return memory_.data<float>();
  }

 private:
  Tensor memory_;
};

}  // namespace qkscope
