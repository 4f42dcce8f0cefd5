// Products of small float32 blocks: the core of linear layers and attention.
//
// Why not a BLAS: every element of the result is one chain of fused multiply-adds in ascending
// order of the summed index, whatever the number of rows or columns around it. So a token's result
// does not depend on what runs beside it, and is the same on every CPU. Libraries choose kernels by
// the size of the product and lose that.
#pragma once

#include <cstdint>

namespace qkscope::gemm {

// The tile that lives in registers. Its shape depends on the CPU target, no bit of a result does.
struct TileShape {
  std::int64_t rows;
  std::int64_t columns;
};
TileShape tile_shape();

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Long sums are cut into equal stretches of at most kMaxDepth and continued from the stored partial
// result. Where they are cut depends on their length alone.
inline constexpr std::int64_t kMaxDepth = 640;
constexpr std::int64_t stretch(std::int64_t depth) {
  const auto count = (depth + kMaxDepth - 1) / kMaxDepth;
  return count <= 1 ? depth : round_up((depth + count - 1) / count, 4);
}

// A block of the left side given by its rows, (rows, depth), row r at values + r * stride; packed
// into round_up(rows, tile_shape().rows) * depth floats, filled up with zeros.
struct LeftRows {
  const float* values;
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t depth;
};
void pack(const LeftRows& a, float* packed);

// The same given by its columns, (depth, rows), column k at values + k * stride.
struct LeftColumns {
  const float* values;
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t depth;
};
void pack(const LeftColumns& a, float* packed);

// A block of the right side given by its columns, (columns, depth). Packed into
// round_up(columns, tile_shape().columns) * depth floats, filled up with zeros.
struct RightColumns {
  const float* values;
  std::int64_t stride;
  std::int64_t columns;
  std::int64_t depth;
};
void pack(const RightColumns& b, float* packed);

// c (rows, columns) with row stride c_stride, = or += packed left times packed right. With
// `left_depth` the left side was packed for a depth beyond `depth`, and only its beginning is
// taken. With `used` only the first columns are wanted: whole vectors of others may stay as they
// are.
struct Product {
  const float* left;
  const float* right;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  std::int64_t left_depth = depth;
  std::int64_t used = columns;
};
void multiply(const Product& product, bool add, float* c, std::int64_t c_stride);

// FLOP/s of the register tile on data in the first-level cache, on all threads: what products would
// reach if nothing else took time. Measured for so many seconds.
double tile_rate(double seconds);

}  // namespace qkscope::gemm
