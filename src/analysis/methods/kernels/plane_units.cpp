#include "analysis/methods/kernels/plane_units.h"

#include <algorithm>

#include "analysis/methods/kernels/plane_kernels.h"
#include "base/core/numbers.h"
#include "base/numerics/products.h"
#include "base/numerics/vectors.h"

namespace qkscope {
namespace {

constexpr std::int64_t kTogether = 32;               // rows per block, sized for the L1 cache
constexpr std::int64_t kPlanes = kPanelColumns / 2;  // planes per group

// Prefetches the next rows, which are scattered in memory, while the current ones are projected.
void prefetch_rows(std::span<const float* const> rows, std::int64_t dim) {
  constexpr std::int64_t kLine = 16;  // floats per cache line
  for (const float* const row : rows)
    for (std::int64_t j = 0; j < dim; j += kLine) __builtin_prefetch(row + j, 0, 2);
}

}  // namespace

CacheAlignedVector<double> PlaneUnitVectors::interleave_axes(const Matrix& axes,
                                                             std::span<const double> line) {
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

void PlaneUnitVectors::project(const Matrix& axes, std::span<const double> line,
                               std::span<const float* const> rows, std::span<const double> centre) {
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
