// The directions in which rows point in planes: a unit vector per row and plane.
#pragma once

#include <complex>
#include <span>
#include <vector>

#include "analysis/moments.h"
#include "numerics/products.h"

namespace qkscope {

// Unit vectors of all rows in every plane, rows in a given order.
class PlaneUnits {
 public:
  // Begins with new planes and rows, in the memory of those before. Axes 2i and 2i+1 (rows of
  // `axes`) span plane i.
  void start(const Matrix& axes, std::int64_t rows);

  // Projects the rows, centred on the pooled mean, and puts row i at places[i]. A row at the centre
  // points along the first axis.
  void project(const CentredRows& rows, const PooledMoments& pooled,
               std::span<const std::uint32_t> places);
  // As complex numbers.
  std::span<const std::complex<double>> plane(std::int64_t plane) const {
    return std::span(units_).subspan(static_cast<std::size_t>(plane * rows_),
                                     static_cast<std::size_t>(rows_));
  }

 private:
  std::int64_t groups() const { return std::ssize(axes_) / (kPanelColumns * dim_); }

  std::int64_t dim_ = 0;
  std::int64_t rows_ = 0;
  std::vector<double> axes_;  // (groups, dim, 8): the first axes of four planes, then the second
  std::vector<std::complex<double>> units_;  // (4 groups, rows)
};

}  // namespace qkscope
