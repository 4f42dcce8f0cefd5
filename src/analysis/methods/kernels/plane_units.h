// Directions of rows in planes: one unit vector per row and plane.
//
// A unit vector is (x, y) / sqrt(x^2 + y^2). Four planes and three rows are processed at a time, to
// hide the latency of square roots and divisions.
// Invariants: the coordinates of a row are stored as x0 x1 x2 x3 y0 y1 y2 y3 for each group of four
// planes; `stride` is at least the number of rows. Nothing beyond the given rows is accessed.
#pragma once

#include <complex>
#include <span>
#include <vector>

#include "base/core/numbers.h"
#include "base/numerics/matrix.h"

namespace qkscope {

// Normalizes the vectors of each row in four planes: to[stride p + i] is the unit vector of row i
// in plane p. xy (rows, 8): four x, then four y. (0, 0) becomes (1, 0).
void to_unit_vectors(const double* xy, std::int64_t rows, std::complex<double>* to,
                     std::int64_t stride);
// Reference implementation with plain loops, for the test of to_unit_vectors().
void to_unit_vectors_reference(const double* xy, std::int64_t rows, std::complex<double>* to,
                               std::int64_t stride);

// Projects rows into every plane as unit vectors, and onto a line, in one pass.
class PlaneUnitVectors {
 public:
  // Projects rows minus `centre`, reusing the buffers of the previous call. Rows 2i and 2i+1 of
  // `axes` span plane i. A row equal to the centre gets direction (1, 0).
  void project(const Matrix& axes, std::span<const double> line, std::span<const float* const> rows,
               std::span<const double> centre);

  // Returns the unit vectors of all rows in one plane, as complex numbers.
  std::span<const std::complex<double>> unit_vectors_in_plane(std::int64_t plane) const {
    return std::span(units_).subspan(as_index(plane) * on_line_.size(), on_line_.size());
  }
  std::span<const double> projections_on_line() const { return on_line_; }

 private:
  std::vector<std::complex<double>> units_;  // (4 groups, rows)
  std::vector<double> on_line_;              // (rows)
};

}  // namespace qkscope
