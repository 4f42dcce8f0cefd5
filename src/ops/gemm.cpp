#include "ops/gemm.h"

#include <algorithm>
#include <cstring>

namespace qkscope::gemm {
namespace {

using Vector = float __attribute__((vector_size(kVectorBytes)));
using Four = float __attribute__((vector_size(16)));

Vector load(const float* values) {
  Vector vector;
  std::memcpy(&vector, values, sizeof vector);
  return vector;
}

void store(float* values, const Vector& vector) {
  std::memcpy(values, &vector, sizeof vector);
}

// One register tile: c (kRows, kColumns) = or += a (depth, kRows) x b (depth, kColumns).
void tile(std::int64_t depth, const float* a, const float* b, bool add, float* c,
          std::int64_t c_stride) {
  Vector sum[kRows][kVectors] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = load(b + k * kColumns + v * kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[row][v] += right[v] * a[k * kRows + row];
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* out = c + row * c_stride + v * kLanes;
      store(out, add ? load(out) + sum[row][v] : sum[row][v]);
    }
}

// A tile at the edge goes through a whole one on the side.
void edge_tile(const Product& p, bool add, float* c, std::int64_t c_stride) {
  float whole[kRows * kColumns] = {};
  const auto width = static_cast<std::size_t>(p.columns) * sizeof(float);
  for (std::int64_t row = 0; add && row < p.rows; ++row)
    std::memcpy(whole + row * kColumns, c + row * c_stride, width);
  tile(p.depth, p.left, p.right, add, whole, kColumns);
  for (std::int64_t row = 0; row < p.rows; ++row)
    std::memcpy(c + row * c_stride, whole + row * kColumns, width);
}

// Four rows of four floats, each `stride` apart, become four columns: out[k][i] = rows[i][k] *
// scale.
void transpose_four(const float* rows, std::int64_t stride, float scale, float* out,
                    std::int64_t out_stride) {
  Four r[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&r[i], rows + i * stride, sizeof(Four));
  const Four low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const Four low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const Four high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  const Four columns[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5) * scale,
                           __builtin_shufflevector(low01, low23, 2, 3, 6, 7) * scale,
                           __builtin_shufflevector(high01, high23, 0, 1, 4, 5) * scale,
                           __builtin_shufflevector(high01, high23, 2, 3, 6, 7) * scale};
  for (int k = 0; k < 4; ++k) std::memcpy(out + k * out_stride, &columns[k], sizeof(Four));
}

// One whole panel: packed[k][i] = source[i][k] * scale for i < unit.
template <int unit>
void pack_panel(const float* source, std::int64_t stride, std::int64_t depth, float scale,
                float* packed) {
  static_assert(unit % 4 == 0);
  std::int64_t k = 0;
  for (; k + 4 <= depth; k += 4)
    for (int i = 0; i < unit; i += 4)
      transpose_four(source + i * stride + k, stride, scale, packed + k * unit + i, unit);
  for (; k < depth; ++k)
    for (int i = 0; i < unit; ++i) packed[k * unit + i] = source[i * stride + k] * scale;
}

// Packs `count` vectors of length depth into panels of `unit`, the last one filled up with zeros.
template <int unit>
void pack_panels(const float* source, std::int64_t stride, std::int64_t count, std::int64_t depth,
                 float scale, float* packed) {
  std::int64_t first = 0;
  for (; first + unit <= count; first += unit, packed += unit * depth)
    pack_panel<unit>(source + first * stride, stride, depth, scale, packed);
  if (first == count) return;
  std::fill_n(packed, unit * depth, 0.0f);
  for (std::int64_t i = 0; first + i < count; ++i)
    for (std::int64_t k = 0; k < depth; ++k)
      packed[k * unit + i] = source[(first + i) * stride + k] * scale;
}

}  // namespace

void pack(const Left& a, float scale, float* packed) {
  pack_panels<kRows>(a.values, a.stride, a.rows, a.depth, scale, packed);
}

void pack(const RightColumns& b, float* packed) {
  pack_panels<kColumns>(b.values, b.stride, b.columns, b.depth, 1.0f, packed);
}

void pack(const RightRows& b, float* packed) {
  for (std::int64_t first = 0; first < b.columns; first += kColumns) {
    const auto filled = std::min<std::int64_t>(kColumns, b.columns - first);
    for (std::int64_t k = 0; k < b.depth; ++k) {
      std::memcpy(packed, b.values + k * b.stride + first,
                  static_cast<std::size_t>(filled) * sizeof(float));
      std::fill(packed + filled, packed + kColumns, 0.0f);
      packed += kColumns;
    }
  }
}

// The left panel stays in the first-level cache while the right side passes from the second; rows
// of c are written from left to right.
void multiply(const Product& p, bool add, float* c, std::int64_t c_stride) {
  for (std::int64_t row = 0; row < p.rows; row += kRows) {
    const float* a = p.left + row * p.depth;
    const auto rows = std::min<std::int64_t>(kRows, p.rows - row);
    for (std::int64_t column = 0; column < p.columns; column += kColumns) {
      const float* b = p.right + column * p.depth;
      const auto columns = std::min<std::int64_t>(kColumns, p.columns - column);
      float* out = c + row * c_stride + column;
      if (rows == kRows && columns == kColumns)
        tile(p.depth, a, b, add, out, c_stride);
      else
        edge_tile({a, b, rows, columns, p.depth}, add, out, c_stride);
    }
  }
}

}  // namespace qkscope::gemm
