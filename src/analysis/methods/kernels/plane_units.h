// Directions of rows in planes: one unit vector per row and plane.
#pragma once

#include <complex>
#include <span>
#include <vector>

#include "base/core/numbers.h"
#include "base/numerics/matrix.h"

namespace qkscope {

// Unit vectors of all rows in every plane, and their projections onto a line, in one pass.
class PlaneUnitVectors {
 public:
  // Projects rows minus `centre`, reusing the buffers of the previous call. Rows 2i and 2i+1 of
  // `axes` span plane i. A row equal to the centre gets direction (1, 0).
  void project(const Matrix& axes, std::span<const double> line, std::span<const float* const> rows,
               std::span<const double> centre);

  // Unit vectors of all rows in a plane as complex numbers.
  std::span<const std::complex<double>> unit_vectors_in_plane(std::int64_t plane) const {
    return std::span(units_).subspan(as_index(plane) * on_line_.size(), on_line_.size());
  }
  std::span<const double> projections_on_line() const { return on_line_; }

 private:
  // Interleaved axes (groups, dim, 8): the first axes of four planes, then their second axes.
  // `line` is appended as the first axis of an extra plane.
  static CacheAlignedVector<double> interleave_axes(const Matrix& axes,
                                                    std::span<const double> line);

  std::vector<std::complex<double>> units_;  // (4 groups, rows)
  std::vector<double> on_line_;              // (rows)
};

}  // namespace qkscope
