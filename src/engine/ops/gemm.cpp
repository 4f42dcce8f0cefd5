#include "engine/ops/gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/core/cpu_target.h"

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
constexpr int kVectors = 3;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
constexpr int kRows = 4;
#else
constexpr int kRows = 8;
#endif
constexpr int kColumns = kVectors * kLanes;

// kRows values of the left side, each in all lanes of a vector.
#if HWY_ARCH_ARM_A64
class LeftValues {  // NEON multiplies by one lane of a register
 public:
  HWY_INLINE explicit LeftValues(const float* a) {
    for (int i = 0; i < kRows / kLanes; ++i) values_[i] = hn::LoadU(Lanes(), a + i * kLanes);
  }
  template <int row>
  HWY_INLINE Vector get() const {
    return hn::Broadcast<row % kLanes>(values_[row / kLanes]);
  }

 private:
  Vector values_[kRows / kLanes];
};
#else
class LeftValues {
 public:
  HWY_INLINE explicit LeftValues(const float* a) : values_(a) {}
  template <int row>
  HWY_INLINE Vector get() const {
    return hn::Set(Lanes(), values_[row]);
  }

 private:
  const float* values_;
};
#endif

template <int row, int vectors>
HWY_INLINE void add_row(const LeftValues& left, const Vector (&right)[vectors],
                        Vector (&sum)[kRows][vectors]) {
  const auto value = left.template get<row>();
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) sum[row][v] = hn::MulAdd(right[v], value, sum[row][v]);
}

template <int vectors, int... row>
HWY_INLINE void add_rows(std::integer_sequence<int, row...>, const LeftValues& left,
                         const Vector (&right)[vectors], Vector (&sum)[kRows][vectors]) {
  (add_row<row, vectors>(left, right, sum), ...);
}

// One register tile: the first vectors of c (kRows, kColumns) = or += a (depth, kRows) x
// b (depth, kColumns).
template <int vectors>
void tile(std::int64_t depth, const float* a, const float* b, bool add, float* c,
          std::int64_t c_stride) {
  const Lanes d;
  Vector sum[kRows][vectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[row][v] = hn::Zero(d);
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector right[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) right[v] = hn::LoadU(d, b + k * kColumns + v * kLanes);
    add_rows(std::make_integer_sequence<int, kRows>(), LeftValues(a + k * kRows), right, sum);
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
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
  tile<kVectors>(p.depth, p.left, p.right, add, whole, kColumns);
  for (std::int64_t row = 0; row < p.rows; ++row)
    std::memcpy(c + row * c_stride, whole + row * kColumns, width);
}

// Four rows of four floats, each `stride` apart, become four columns: out[k][i] = rows[i][k].
HWY_INLINE void transpose_four(const float* rows, std::int64_t stride, float* out,
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
  hn::StoreU(hn::ConcatLowerLower(four, low23, low01), four, out);
  hn::StoreU(hn::ConcatUpperUpper(four, low23, low01), four, out + out_stride);
  hn::StoreU(hn::ConcatLowerLower(four, high23, high01), four, out + 2 * out_stride);
  hn::StoreU(hn::ConcatUpperUpper(four, high23, high01), four, out + 3 * out_stride);
}

// One whole panel: packed[k][i] = source[i][k] for i < unit.
template <int unit>
void pack_panel(const float* source, std::int64_t stride, std::int64_t depth, float* packed) {
  static_assert(unit % 4 == 0);
  std::int64_t k = 0;
  for (; k + 4 <= depth; k += 4)
    for (int i = 0; i < unit; i += 4)
      transpose_four(source + i * stride + k, stride, packed + k * unit + i, unit);
  for (; k < depth; ++k)
    for (int i = 0; i < unit; ++i) packed[k * unit + i] = source[i * stride + k];
}

// Packs `count` vectors of length depth into panels of `unit`, the last one filled up with zeros.
template <int unit>
void pack_panels(const float* source, std::int64_t stride, std::int64_t count, std::int64_t depth,
                 float* packed) {
  std::int64_t first = 0;
  for (; first + unit <= count; first += unit, packed += unit * depth)
    pack_panel<unit>(source + first * stride, stride, depth, packed);
  if (first == count) return;
  std::fill_n(packed, unit * depth, 0.0f);
  for (std::int64_t i = 0; first + i < count; ++i)
    for (std::int64_t k = 0; k < depth; ++k)
      packed[k * unit + i] = source[(first + i) * stride + k];
}

TileShape shape_kernel() {
  return {kRows, kColumns};
}

void pack_left_rows_kernel(const LeftRows& a, float* packed) {
  pack_panels<kRows>(a.values, a.stride, a.rows, a.depth, packed);
}

void pack_left_columns_kernel(const LeftColumns& a, float* packed) {
  std::int64_t first = 0;
  for (; first + kRows <= a.rows; first += kRows)
    for (std::int64_t k = 0; k < a.depth; ++k, packed += kRows)
      std::memcpy(packed, a.values + k * a.stride + first, kRows * sizeof(float));
  if (first == a.rows) return;
  for (std::int64_t k = 0; k < a.depth; ++k, packed += kRows) {
    const float* column = a.values + k * a.stride;
    std::fill(std::copy(column + first, column + a.rows, packed), packed + kRows, 0.0f);
  }
}

void pack_right_columns_kernel(const RightColumns& b, float* packed) {
  pack_panels<kColumns>(b.values, b.stride, b.columns, b.depth, packed);
}

// The left panel stays in the first-level cache while the right side passes from the second; rows
// of c are written from left to right.
void multiply_kernel(const Product& p, bool add, float* c, std::int64_t c_stride) {
  for (std::int64_t row = 0; row < p.rows; row += kRows) {
    const float* a = p.left + row * p.left_depth;
    const auto rows = std::min<std::int64_t>(kRows, p.rows - row);
    for (std::int64_t column = 0; column < p.columns; column += kColumns) {
      const float* b = p.right + column * p.depth;
      const auto columns = std::min<std::int64_t>(kColumns, p.columns - column);
      float* out = c + row * c_stride + column;
      const bool whole = rows == kRows && columns == kColumns;
      if (whole && p.used - column > kLanes)
        tile<kVectors>(p.depth, a, b, add, out, c_stride);
      else if (whole)
        tile<1>(p.depth, a, b, add, out, c_stride);
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
HWY_EXPORT(pack_left_rows_kernel);
HWY_EXPORT(pack_left_columns_kernel);
HWY_EXPORT(pack_right_columns_kernel);
HWY_EXPORT(multiply_kernel);

TileShape tile_shape() {
  return QKSCOPE_DISPATCH(shape_kernel)();
}

void pack(const LeftRows& a, float* packed) {
  QKSCOPE_DISPATCH(pack_left_rows_kernel)(a, packed);
}

void pack(const LeftColumns& a, float* packed) {
  QKSCOPE_DISPATCH(pack_left_columns_kernel)(a, packed);
}

void pack(const RightColumns& b, float* packed) {
  QKSCOPE_DISPATCH(pack_right_columns_kernel)(b, packed);
}

void multiply(const Product& product, bool add, float* c, std::int64_t c_stride) {
  QKSCOPE_DISPATCH(multiply_kernel)(product, add, c, c_stride);
}

}  // namespace qkscope::gemm
#endif
