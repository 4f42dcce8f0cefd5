// Products of small float32 blocks: the core of linear layers and attention.
//
// Why not a BLAS: every element of the result is one chain of fused multiply-adds in ascending
// order of the summed index, whatever the number of rows or columns around it. So a token's result
// does not depend on what runs beside it, on any machine. Libraries choose kernels by the size of
// the product and lose that. Packing also widens stored weights on the way.
#pragma once

#include <cstdint>

namespace qkscope::gemm {

// The tile that lives in registers: kRows x kColumns.
#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kVectors = 2;
inline constexpr int kRows = 12;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
inline constexpr int kVectors = 3;
inline constexpr int kRows = 4;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectors = 2;
inline constexpr int kRows = 8;
#endif
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(float));
inline constexpr int kColumns = kVectors * kLanes;

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

// A block of the left side, (rows, depth), row r at a + r * stride, times `scale`; packed into
// round_up(rows, kRows) * depth floats, filled up with zeros.
struct Left {
  const float* values;
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t depth;
};
void pack(const Left& a, float scale, float* packed);

// A block of the right side given by its columns, (columns, depth): weights, keys. Packed into
// round_up(columns, kColumns) * depth floats.
struct RightColumns {
  const float* values;
  std::int64_t stride;
  std::int64_t columns;
  std::int64_t depth;
};
void pack(const RightColumns& b, float* packed);

// A block of the right side given by its rows, (depth, columns): values.
struct RightRows {
  const float* values;
  std::int64_t stride;
  std::int64_t depth;
  std::int64_t columns;
};
void pack(const RightRows& b, float* packed);

// c (rows, columns) with row stride c_stride, = or += packed left times packed right.
struct Product {
  const float* left;
  const float* right;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
};
void multiply(const Product& product, bool add, float* c, std::int64_t c_stride);

}  // namespace qkscope::gemm
