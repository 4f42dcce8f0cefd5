// Directions of rows in planes as unit vectors.
//
// A unit vector is (x, y) / sqrt(x^2 + y^2). Four planes and three rows are processed at a time, to
// hide the latency of square roots and divisions.
// Invariants: the coordinates of a row are stored as x0 x1 x2 x3 y0 y1 y2 y3 for each group of four
// planes; `stride` is at least the number of rows. Nothing is read or written beyond the given
// rows.
#pragma once

#include <complex>
#include <cstdint>

namespace qkscope {

// Normalizes the vectors of each row in four planes: to[stride p + i] is the unit vector of row i
// in plane p. xy (rows, 8): four x, then four y. (0, 0) becomes (1, 0).
void to_unit_vectors(const double* xy, std::int64_t rows, std::complex<double>* to,
                     std::int64_t stride);
// Reference implementation with plain loops, for the test of to_unit_vectors().
void to_unit_vectors_reference(const double* xy, std::int64_t rows, std::complex<double>* to,
                               std::int64_t stride);

}  // namespace qkscope
