#include "analysis/kernels/plane_units.h"

#include <algorithm>

#include "analysis/kernels/vector_loops.h"

namespace qkscope {
namespace {

constexpr std::int64_t kBlock = 32;  // rows that stay in the first cache for all planes

}  // namespace

void PlaneUnits::start(const Matrix& axes, std::int64_t rows) {
  dim_ = axes.cols;
  rows_ = rows;
  const std::int64_t planes = axes.rows / 2;
  const std::int64_t groups = (planes + 3) / 4;
  axes_.assign(static_cast<std::size_t>(groups * dim_ * kPanelColumns), 0.0);
  for (std::int64_t plane = 0; plane < planes; ++plane)
    for (std::int64_t j = 0; j < dim_; ++j) {
      double* const to = axes_.data() + (plane / 4 * dim_ + j) * kPanelColumns + plane % 4;
      to[0] = axes(2 * plane, j);
      to[4] = axes(2 * plane + 1, j);
    }
  units_.resize(static_cast<std::size_t>(groups * rows));
}

// The rows' distance from the pooled mean along each axis: what their own mean leaves out.
std::vector<double> PlaneUnits::shift_of(const CentredRows& rows,
                                         const PooledMoments& pooled) const {
  std::vector<double> shift(static_cast<std::size_t>(groups() * kPanelColumns));
  for (std::int64_t group = 0; group < groups(); ++group) {
    double* const to = shift.data() + group * kPanelColumns;
    for (std::int64_t j = 0; j < dim_; ++j) {
      const auto at = static_cast<std::size_t>(j);
      for (std::int64_t axis = 0; axis < kPanelColumns; ++axis)
        to[axis] += (rows.mean[at] - pooled.mean[at]) * axes_of(group)[j * kPanelColumns + axis];
    }
  }
  return shift;
}

void PlaneUnits::project(const CentredRows& rows, const PooledMoments& pooled,
                         std::span<const std::uint32_t> places) {
  const auto shift = shift_of(rows, pooled);
  std::vector<double> block(static_cast<std::size_t>(kBlock * dim_));
  for (std::int64_t begin = 0; begin < rows.size(); begin += kBlock) {
    const auto count = std::min(kBlock, rows.size() - begin);
    centre_side_by_side(rows.source.vectors.data() + begin * dim_, count, rows.mean, block.data());
    for (std::int64_t group = 0; group < groups(); ++group) {
      double xy[kBlock * kPanelColumns];
      multiply_panel(block.data(), count, dim_, axes_of(group), xy);
      unit_vectors(xy, shift.data() + group * kPanelColumns,
                   places.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
                   units_.data() + group * rows_);
    }
  }
}

}  // namespace qkscope
