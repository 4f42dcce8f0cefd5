#include "base/numerics/eigen_kernels.h"

#include <algorithm>

#include "base/core/cpu_target.h"
#include "base/core/numbers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/numerics/eigen_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/numerics/kernel_helpers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Eight partial sums per row, four rows at a time, to hide the latency of additions.
constexpr int kSums = 8;
constexpr int kRows = 4;
using Doubles = hn::CappedTag<double, kSums>;
using Vector = hn::Vec<Doubles>;
constexpr int kLanes = hn::MaxLanes(Doubles());
constexpr int kVectors = kSums / kLanes;
constexpr int kBlockVectors = kEigenBlock / kLanes;

HWY_INLINE Vector load(const double* from) {
  return hn::LoadU(Doubles(), from);
}
HWY_INLINE void store(Vector value, double* to) {
  hn::StoreU(value, Doubles(), to);
}

std::int64_t block_begin_of_column(std::int64_t column) {
  return column / kEigenBlock * kEigenBlock;
}

template <int rows>
HWY_INLINE void times(const PaddedRows& matrix, std::int64_t first, std::int64_t begin,
                      const double* v, double* out) {
  Vector sum[rows][kVectors];
  for (auto& row : sum)
    for (Vector& part : row) part = hn::Zero(Doubles());
  for (std::int64_t at = begin; at < matrix.columns; at += kSums) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const Vector factor = load(v + at + i * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r)
        sum[r][i] = hn::MulAdd(load(matrix.row(first + r) + at + i * kLanes), factor, sum[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) out[first + r] = sum_all_lanes(Doubles(), sum[r]);
}

void multiply_rows_by_vector_kernel(PaddedRows matrix, std::int64_t first, std::int64_t last,
                                    std::int64_t column, const double* v, double* out) {
  const std::int64_t begin = block_begin_of_column(column);
  std::int64_t i = first;
  for (; i + kRows <= last; i += kRows) times<kRows>(matrix, i, begin, v, out);
  for (; i < last; ++i) times<1>(matrix, i, begin, v, out);
}

void subtract_outer_products_kernel(PaddedRows matrix, std::int64_t first, std::int64_t last,
                                    std::int64_t column, const double* v, const double* w) {
  const std::int64_t begin = block_begin_of_column(column);
  for (std::int64_t i = first; i < last; ++i) {
    const Vector v_i = hn::Set(Doubles(), v[i]);
    const Vector w_i = hn::Set(Doubles(), w[i]);
    double* row = matrix.row(i);
    for (std::int64_t at = begin; at < matrix.columns; at += kEigenBlock)
#pragma GCC unroll 8
      for (int k = 0; k < kBlockVectors; ++k) {
        const std::int64_t c = at + k * kLanes;
        store(hn::NegMulAdd(w_i, load(v + c), hn::NegMulAdd(v_i, load(w + c), load(row + c))),
              row + c);
      }
  }
}

void reflect_columns_kernel(PaddedRows matrix, std::int64_t first, std::int64_t last,
                            std::int64_t column, const double* v, double factor, double* sum) {
  const std::int64_t begin = block_begin_of_column(column);
  std::fill(sum + begin, sum + matrix.columns, 0.0);
  for (std::int64_t at = begin; at < matrix.columns; at += kEigenBlock) {
    Vector total[kBlockVectors];
    for (Vector& part : total) part = hn::Zero(Doubles());
    for (std::int64_t i = first; i < last; ++i) {
      const Vector v_i = hn::Set(Doubles(), v[i]);
#pragma GCC unroll 8
      for (int k = 0; k < kBlockVectors; ++k)
        total[k] = hn::MulAdd(v_i, load(matrix.row(i) + at + k * kLanes), total[k]);
    }
    const Vector scale = hn::Set(Doubles(), factor);
    for (int k = 0; k < kBlockVectors; ++k) store(hn::Mul(scale, total[k]), sum + at + k * kLanes);
  }
  for (std::int64_t i = first; i < last; ++i) {
    const Vector v_i = hn::Set(Doubles(), v[i]);
    double* row = matrix.row(i);
    for (std::int64_t c = begin; c < matrix.columns; c += kLanes)
      store(hn::NegMulAdd(v_i, load(sum + c), load(row + c)), row + c);
  }
}

// Givens rotations: the row shared by two consecutive rotations stays in registers.
void apply_givens_rotations_kernel(PaddedRows matrix, std::int64_t top,
                                   std::span<const double> cosine, std::span<const double> sine) {
  const auto count = std::ssize(cosine);
  for (std::int64_t at = 0; at < matrix.columns; at += kEigenBlock) {
    Vector upper[kBlockVectors];
    for (int k = 0; k < kBlockVectors; ++k) upper[k] = load(matrix.row(top) + at + k * kLanes);
    for (std::int64_t j = 0; j < count; ++j) {
      const Vector c = hn::Set(Doubles(), cosine[as_index(j)]);
      const Vector s = hn::Set(Doubles(), sine[as_index(j)]);
      double* to = matrix.row(top - j) + at;
      const double* from = matrix.row(top - j - 1) + at;
#pragma GCC unroll 8
      for (int k = 0; k < kBlockVectors; ++k) {
        const Vector lower = load(from + k * kLanes);
        store(hn::MulAdd(s, lower, hn::Mul(c, upper[k])), to + k * kLanes);
        upper[k] = hn::MulSub(c, lower, hn::Mul(s, upper[k]));
      }
    }
    for (int k = 0; k < kBlockVectors; ++k)
      store(upper[k], matrix.row(top - count) + at + k * kLanes);
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {

QKSCOPE_EXPORT_KERNEL(void, multiply_rows_by_vector,
                      (PaddedRows rows, std::int64_t first, std::int64_t last, std::int64_t column,
                       const double* v, double* out),
                      (rows, first, last, column, v, out));
QKSCOPE_EXPORT_KERNEL(void, subtract_outer_products,
                      (PaddedRows rows, std::int64_t first, std::int64_t last, std::int64_t column,
                       const double* v, const double* w),
                      (rows, first, last, column, v, w));
QKSCOPE_EXPORT_KERNEL(void, reflect_columns,
                      (PaddedRows rows, std::int64_t first, std::int64_t last, std::int64_t column,
                       const double* v, double factor, double* sum),
                      (rows, first, last, column, v, factor, sum));
QKSCOPE_EXPORT_KERNEL(void, apply_givens_rotations,
                      (PaddedRows rows, std::int64_t top, std::span<const double> cosine,
                       std::span<const double> sine),
                      (rows, top, cosine, sine));

}  // namespace qkscope
#endif
