// The directions in which rows point in planes: a unit vector per row and plane.
#pragma once

#include <complex>
#include <span>
#include <vector>

#include "base/numerics/matrix.h"

namespace qkscope {

// Unit vectors of rows in every plane, and the rows' coordinates on a line, all in one pass over
// them.
class PlaneUnits {
 public:
  // Rows (each as long as an axis) minus `centre`, in the memory of those before. Axes 2i and 2i+1
  // (rows of `axes`) span plane i. A row at the centre points along the first axis.
  void project(const Matrix& axes, std::span<const double> line, std::span<const float* const> rows,
               std::span<const double> centre);

  // As complex numbers.
  std::span<const std::complex<double>> plane(std::int64_t plane) const {
    return std::span(units_).subspan(static_cast<std::size_t>(plane) * on_line_.size(),
                                     on_line_.size());
  }
  std::span<const double> on_line() const { return on_line_; }

 private:
  // (groups, dim, 8): the first axes of four planes, then the second. Behind the last plane the
  // line takes the place of one more.
  static LineVector<double> group_axes(const Matrix& axes, std::span<const double> line);

  std::vector<std::complex<double>> units_;  // (4 groups, rows)
  std::vector<double> on_line_;              // (rows)
};

}  // namespace qkscope
