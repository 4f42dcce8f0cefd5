#include "analysis/kernels/plane_units.h"

#include <algorithm>
#include <cmath>

namespace qkscope {
namespace {

constexpr std::int64_t kBlock = 8 * kTileRows;  // rows that stay in the first cache for all planes

// Each (x, y), moved by `shift`, made a unit vector; the x of four planes come first, then their y.
inline FourValues unit_vectors(const double* xy, const double* shift) {
  FourValues unit;
  double square[4];
  double inverse[4];
  for (int plane = 0; plane < 4; ++plane) {
    unit.re[plane] = xy[plane] + shift[plane];
    unit.im[plane] = xy[plane + 4] + shift[plane + 4];
    square[plane] = unit.re[plane] * unit.re[plane] + unit.im[plane] * unit.im[plane];
  }
  for (int plane = 0; plane < 4; ++plane) inverse[plane] = 1 / std::sqrt(square[plane]);
  for (int plane = 0; plane < 4; ++plane) {
    // atan2(0, 0) is 0: a row at the centre points along the first axis.
    unit.re[plane] = square[plane] > 0 ? unit.re[plane] * inverse[plane] : 1;
    unit.im[plane] = square[plane] > 0 ? unit.im[plane] * inverse[plane] : 0;
  }
  return unit;
}

}  // namespace

void PlaneUnits::start(const Matrix& axes, std::int64_t rows) {
  dim_ = axes.cols;
  rows_ = rows;
  const std::int64_t planes = axes.rows / 2;
  const std::int64_t groups = (planes + 3) / 4;
  axes_.assign(static_cast<std::size_t>(groups * dim_ * kTileColumns), 0.0);
  for (std::int64_t plane = 0; plane < planes; ++plane)
    for (std::int64_t j = 0; j < dim_; ++j) {
      double* const to = axes_.data() + (plane / 4 * dim_ + j) * kTileColumns + plane % 4;
      to[0] = axes(2 * plane, j);
      to[4] = axes(2 * plane + 1, j);
    }
  units_.resize(static_cast<std::size_t>(groups * rows));
}

// The rows' distance from the pooled mean along each axis: what their own mean leaves out.
std::vector<double> PlaneUnits::shift_of(const CentredRows& rows,
                                         const PooledMoments& pooled) const {
  std::vector<double> shift(static_cast<std::size_t>(groups() * kTileColumns));
  for (std::int64_t group = 0; group < groups(); ++group) {
    double* const to = shift.data() + group * kTileColumns;
    for (std::int64_t j = 0; j < dim_; ++j) {
      const auto at = static_cast<std::size_t>(j);
      for (std::int64_t axis = 0; axis < kTileColumns; ++axis)
        to[axis] += (rows.mean[at] - pooled.mean[at]) * axes_of(group)[j * kTileColumns + axis];
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
    copy_centred(rows, begin, begin + count, block.data());
    for (std::int64_t group = 0; group < groups(); ++group) {
      FourValues* const to = units_.data() + group * rows_;
      const double* const offset = shift.data() + group * kTileColumns;
      const auto project_tile = [&](std::int64_t first, auto tile_rows) {
        double xy[tile_rows][kTileColumns];
        tile_product<tile_rows>(dim_, RowsOf{block.data() + first * dim_, dim_}, axes_of(group),
                                xy[0]);
        for (int row = 0; row < tile_rows; ++row)
          to[places[static_cast<std::size_t>(begin + first + row)]] = unit_vectors(xy[row], offset);
      };
      for (std::int64_t row = 0; row < count;)
        row += with_tile_rows(count - row, [&](auto tile_rows) { project_tile(row, tile_rows); });
    }
  }
}

}  // namespace qkscope
