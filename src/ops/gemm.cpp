#include "ops/gemm.h"

#include <algorithm>
#include <cstring>

#include "core/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::gemm::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Lanes()));

// As many sums as the registers hold beside a row of the right side: 32 registers with AVX-512 and
// NEON, 16 with AVX2 and SSE4.
#if HWY_TARGET == HWY_AVX3
constexpr int kVectors = 2;
constexpr int kRows = 12;
#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
constexpr int kVectors = 3;
constexpr int kRows = 4;
#else
constexpr int kVectors = 2;
constexpr int kRows = 8;
#endif
constexpr int kColumns = kVectors * kLanes;

// One register tile: c (kRows, kColumns) = or += a (depth, kRows) x b (depth, kColumns).
void tile(std::int64_t depth, const float* a, const float* b, bool add, float* c,
          std::int64_t c_stride) {
  const Lanes d;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[row][v] = hn::Zero(d);
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + k * kColumns + v * kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const auto left = hn::Set(d, a[k * kRows + row]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[row][v] = hn::MulAdd(right[v], left, sum[row][v]);
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* out = c + row * c_stride + v * kLanes;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, out), sum[row][v]) : sum[row][v], d, out);
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

// What packing does to a value. A type of its own where that is nothing: no multiplication is left.
struct AsIs {
  template <typename D>
  HWY_INLINE hn::Vec<D> operator()(D, hn::Vec<D> value) const {
    return value;
  }
  HWY_INLINE float operator()(float value) const { return value; }
};
struct Scaled {
  float factor;
  template <typename D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> value) const {
    return hn::Mul(value, hn::Set(d, factor));
  }
  HWY_INLINE float operator()(float value) const { return value * factor; }
};

// Four rows of four floats, each `stride` apart, become four columns: out[k][i] = rows[i][k].
template <typename Change>
HWY_INLINE void transpose_four(const float* rows, std::int64_t stride, Change change, float* out,
                               std::int64_t out_stride) {
  const hn::CappedTag<float, 4> four;
  const auto r0 = hn::LoadU(four, rows);
  const auto r1 = hn::LoadU(four, rows + stride);
  const auto r2 = hn::LoadU(four, rows + 2 * stride);
  const auto r3 = hn::LoadU(four, rows + 3 * stride);
  const auto low01 = hn::InterleaveLower(four, r0, r1);
  const auto low23 = hn::InterleaveLower(four, r2, r3);
  const auto high01 = hn::InterleaveUpper(four, r0, r1);
  const auto high23 = hn::InterleaveUpper(four, r2, r3);
  hn::StoreU(change(four, hn::ConcatLowerLower(four, low23, low01)), four, out);
  hn::StoreU(change(four, hn::ConcatUpperUpper(four, low23, low01)), four, out + out_stride);
  hn::StoreU(change(four, hn::ConcatLowerLower(four, high23, high01)), four, out + 2 * out_stride);
  hn::StoreU(change(four, hn::ConcatUpperUpper(four, high23, high01)), four, out + 3 * out_stride);
}

// One whole panel: packed[k][i] = source[i][k] for i < unit.
template <int unit, typename Change>
void pack_panel(const float* source, std::int64_t stride, std::int64_t depth, Change change,
                float* packed) {
  static_assert(unit % 4 == 0);
  std::int64_t k = 0;
  for (; k + 4 <= depth; k += 4)
    for (int i = 0; i < unit; i += 4)
      transpose_four(source + i * stride + k, stride, change, packed + k * unit + i, unit);
  for (; k < depth; ++k)
    for (int i = 0; i < unit; ++i) packed[k * unit + i] = change(source[i * stride + k]);
}

// Packs `count` vectors of length depth into panels of `unit`, the last one filled up with zeros.
template <int unit, typename Change>
void pack_panels(const float* source, std::int64_t stride, std::int64_t count, std::int64_t depth,
                 Change change, float* packed) {
  std::int64_t first = 0;
  for (; first + unit <= count; first += unit, packed += unit * depth)
    pack_panel<unit>(source + first * stride, stride, depth, change, packed);
  if (first == count) return;
  std::fill_n(packed, unit * depth, 0.0f);
  for (std::int64_t i = 0; first + i < count; ++i)
    for (std::int64_t k = 0; k < depth; ++k)
      packed[k * unit + i] = change(source[(first + i) * stride + k]);
}

TileShape shape_kernel() {
  return {kRows, kColumns};
}

void pack_left_kernel(const Left& a, float scale, float* packed) {
  pack_panels<kRows>(a.values, a.stride, a.rows, a.depth, Scaled{scale}, packed);
}

void pack_columns_kernel(const RightColumns& b, float* packed) {
  pack_panels<kColumns>(b.values, b.stride, b.columns, b.depth, AsIs(), packed);
}

void pack_rows_kernel(const RightRows& b, float* packed) {
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
void multiply_kernel(const Product& p, bool add, float* c, std::int64_t c_stride) {
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

}  // namespace qkscope::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope::gemm {

HWY_EXPORT(shape_kernel);
HWY_EXPORT(pack_left_kernel);
HWY_EXPORT(pack_columns_kernel);
HWY_EXPORT(pack_rows_kernel);
HWY_EXPORT(multiply_kernel);

TileShape tile_shape() {
  return QKSCOPE_DISPATCH(shape_kernel)();
}

void pack(const Left& a, float scale, float* packed) {
  QKSCOPE_DISPATCH(pack_left_kernel)(a, scale, packed);
}

void pack(const RightColumns& b, float* packed) {
  QKSCOPE_DISPATCH(pack_columns_kernel)(b, packed);
}

void pack(const RightRows& b, float* packed) {
  QKSCOPE_DISPATCH(pack_rows_kernel)(b, packed);
}

void multiply(const Product& product, bool add, float* c, std::int64_t c_stride) {
  QKSCOPE_DISPATCH(multiply_kernel)(product, add, c, c_stride);
}

}  // namespace qkscope::gemm
#endif
