// Directions of rows in planes: one unit vector (x, y) / sqrt(x^2 + y^2) per row and plane. Four
// planes and three rows are processed at a time, to hide the latency of square roots and divisions.
// Invariants: the coordinates of a row are stored as x0 x1 x2 x3 y0 y1 y2 y3 for each group of four
// planes; `stride` is at least the number of rows. Nothing beyond the given rows is accessed.
#include <algorithm>
#include <cmath>

#include "analysis/methods/rotation.h"
#include "base/core/cpu_target.h"
#include "base/core/numbers.h"
#include "base/numerics/matrix.h"
#include "base/numerics/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "analysis/methods/kernels/plane_units.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using TwoDoubles = hn::CappedTag<double, 2>;

// Normalizes kRows independent rows at a time, so that divisions and square roots overlap.
template <int kRows>
HWY_INLINE void write_unit_vectors(const double* xy, std::complex<double>* to,
                                   std::int64_t stride) {
  const TwoDoubles d;
  constexpr int kPairs = 2 * kRows;  // pairs of planes
  const auto from = [&](int pair) { return xy + 8 * (pair / 2) + 2 * (pair % 2); };
  hn::Vec<TwoDoubles> square[kPairs];
  hn::Vec<TwoDoubles> inverse[kPairs];
#pragma GCC unroll 8
  for (int pair = 0; pair < kPairs; ++pair) {
    const auto x = hn::LoadU(d, from(pair));
    const auto y = hn::LoadU(d, from(pair) + 4);
    square[pair] = hn::MulAdd(x, x, hn::Mul(y, y));
  }
#pragma GCC unroll 8
  for (int pair = 0; pair < kPairs; ++pair)
    inverse[pair] = hn::Div(hn::Set(d, 1), hn::Sqrt(square[pair]));
#pragma GCC unroll 8
  for (int pair = 0; pair < kPairs; ++pair) {
    const auto x = hn::Mul(hn::LoadU(d, from(pair)), inverse[pair]);
    const auto y = hn::Mul(hn::LoadU(d, from(pair) + 4), inverse[pair]);
    const auto somewhere = hn::Gt(square[pair], hn::Zero(d));
    const auto re = hn::IfThenElse(somewhere, x, hn::Set(d, 1));
    const auto im = hn::IfThenElseZero(somewhere, y);
    double* const unit = reinterpret_cast<double*>(to + pair % 2 * 2 * stride + pair / 2);
    hn::StoreU(hn::InterleaveLower(d, re, im), d, unit);
    hn::StoreU(hn::InterleaveUpper(d, re, im), d, unit + 2 * stride);
  }
}

void to_unit_vectors_kernel(const double* xy, std::int64_t rows, std::complex<double>* to,
                            std::int64_t stride) {
  constexpr std::int64_t kTogether = 3;
  std::int64_t row = 0;
  for (; row + kTogether <= rows; row += kTogether)
    write_unit_vectors<kTogether>(xy + 8 * row, to + row, stride);
  for (; row < rows; ++row) write_unit_vectors<1>(xy + 8 * row, to + row, stride);
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

constexpr std::int64_t kTogether = 32;               // rows per block, sized for the L1 cache
constexpr std::int64_t kPlanes = kPanelColumns / 2;  // planes per group

// Prefetches the next rows, which are scattered in memory, while the current rows are projected.
void prefetch_rows(std::span<const float* const> rows, std::int64_t dim) {
  constexpr std::int64_t kLine = 16;  // floats per cache line
  for (const float* const row : rows)
    for (std::int64_t j = 0; j < dim; j += kLine) __builtin_prefetch(row + j, 0, 2);
}

// Interleaves the axes into shape (groups, dim, 8): the first axes of four planes, then their
// second axes. `line` is appended as the first axis of an additional plane.
CacheAlignedVector<double> interleave_axes(const Matrix& axes, std::span<const double> line) {
  const auto dim = std::ssize(line);
  const auto planes = axes.rows / 2;
  const auto groups = planes / kPlanes + 1;
  CacheAlignedVector<double> grouped(as_index(groups * dim * kPanelColumns));
  const auto put = [&](std::int64_t plane, std::int64_t second, const double* axis) {
    double* to = grouped.data() + plane / kPlanes * dim * kPanelColumns + plane % kPlanes;
    for (std::int64_t j = 0; j < dim; ++j, to += kPanelColumns) to[second * kPlanes] = axis[j];
  };
  for (std::int64_t axis = 0; axis < 2 * planes; ++axis) put(axis / 2, axis % 2, axes.row(axis));
  put(planes, 0, line.data());
  return grouped;
}

}  // namespace

QKSCOPE_EXPORT_KERNEL(void, to_unit_vectors,
                      (const double* xy, std::int64_t rows, std::complex<double>* to,
                       std::int64_t stride),
                      (xy, rows, to, stride));

void to_unit_vectors_reference(const double* xy, std::int64_t rows, std::complex<double>* to,
                               std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t plane = 0; plane < 4; ++plane) {
      const std::complex<double> point(xy[8 * row + plane], xy[8 * row + 4 + plane]);
      to[stride * plane + row] = point == 0.0 ? 1.0 : point / std::abs(point);
    }
}

void PlaneUnitVectors::project_rows_onto_planes(const Matrix& axes, std::span<const double> line,
                                                std::span<const float* const> rows,
                                                std::span<const double> centre) {
  const auto dim = std::ssize(line);
  const auto count = std::ssize(rows);
  const auto grouped = interleave_axes(axes, line);
  const auto groups = std::ssize(grouped) / (dim * kPanelColumns);
  units_.resize(as_index(kPlanes * groups * count));
  on_line_.resize(rows.size());
  CacheAlignedVector<double> block(as_index(kTogether * dim));
  for (std::int64_t begin = 0; begin < count; begin += kTogether) {
    const auto here = std::min(kTogether, count - begin);
    const auto behind = rows.subspan(as_index(begin + here));
    prefetch_rows(behind.first(std::min<std::size_t>(kTogether, behind.size())), dim);
    for (std::int64_t i = 0; i < here; ++i)
      centre_rows(rows[as_index(begin + i)], 1, centre, block.data() + i * dim);
    double xy[kTogether * kPanelColumns];
    for (std::int64_t group = 0; group < groups; ++group) {
      multiply_panel(block.data(), here, dim, grouped.data() + group * dim * kPanelColumns, xy);
      to_unit_vectors(xy, here, units_.data() + kPlanes * group * count + begin, count);
    }
    const double* along = xy + axes.rows / 2 % kPlanes;  // the line in the last group
    for (std::int64_t i = 0; i < here; ++i)
      on_line_[as_index(begin + i)] = along[i * kPanelColumns];
  }
}

}  // namespace qkscope
#endif
