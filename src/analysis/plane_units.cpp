#include "analysis/plane_units.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace qkscope {
namespace {

constexpr std::int64_t kBlock = 8 * kTileRows;  // rows that stay in the first cache for all planes

constexpr double kCentre = 1e-290;  // squared distances below it are none

// 1 / sqrt(x): a guess from the halved exponent, good to 3.5 %, and four steps of Newton's method,
// each of which squares the error. A division and a square root would take five times as long.
inline TwoDoubles inverse_root(const TwoDoubles& x) {
  using Integers = decltype(x < x);
  constexpr std::int64_t kGuess = 0x5FE6EB50C7B537A9;
  auto y = std::bit_cast<TwoDoubles>(kGuess - (std::bit_cast<Integers>(x) >> 1));
  for (int step = 0; step < 4; ++step) y = y * (1.5 - 0.5 * x * y * y);
  return y;
}

// Each (x, y) made a unit vector; the x of four planes come first, then their y.
inline FourValues unit_vectors(const double (&xy)[kTileColumns]) {
  FourValues unit;
#pragma GCC unroll 2
  for (int plane = 0; plane < 4; plane += 2) {
    const auto x = load<TwoDoubles>(xy + plane);
    const auto y = load<TwoDoubles>(xy + plane + 4);
    const TwoDoubles square = x * x + y * y;
    const TwoDoubles inverse = inverse_root(square);
    // atan2(0, 0) is 0: a row at the centre points along the first axis.
    const auto off_centre = square > kCentre;
    store(unit.re + plane, off_centre ? x * inverse : TwoDoubles{1, 1});
    store(unit.im + plane, off_centre ? y * inverse : TwoDoubles{0, 0});
  }
  return unit;
}

}  // namespace

PlaneUnits::PlaneUnits(const Matrix& axes, std::int64_t rows) : dim_(axes.cols), rows_(rows) {
  const std::int64_t planes = axes.rows / 2;
  const std::int64_t groups = (planes + 3) / 4;
  axes_.resize(static_cast<std::size_t>(groups * dim_ * kTileColumns));
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
      const auto project_tile = [&](std::int64_t first, auto tile_rows) {
        const double* const left = block.data() + first * dim_;
        Tile<tile_rows> tile;
        tile.start(shift.data() + group * kTileColumns);
        tile.add_product(
            dim_, [&](int row, std::int64_t j) { return left[row * dim_ + j]; }, axes_of(group),
            kTileColumns);
        for (int row = 0; row < tile_rows; ++row) {
          double xy[kTileColumns];
          tile.copy_row(row, xy);
          to[places[static_cast<std::size_t>(begin + first + row)]] = unit_vectors(xy);
        }
      };
      for (std::int64_t row = 0; row < count;)
        row += with_tile_rows(count - row, [&](auto tile_rows) { project_tile(row, tile_rows); });
    }
  }
}

}  // namespace qkscope
