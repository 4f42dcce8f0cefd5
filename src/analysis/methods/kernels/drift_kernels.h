// Vector loops over rows in a query model's rotated coordinates.
//
// The rotation is x = s (row - mean) with signs s, followed by the Householder reflection
// x - 2 w (w . x) that takes the queries' drift onto the first axis (LAPACK's dlarf with beta 2).
// turn_rows() writes whole rows; drift_residuals() writes single coordinates as contiguous lines
// without their linear drift, and sums what bucket means, variances and normality tests need.
// Invariants: all arithmetic is float64 with fused multiply-adds in a fixed order, so that every
// CPU target gives the same bytes; `w` is a unit vector or empty.
// Beyond a row: turn_rows() rounds a row up to 16 numbers and overwrites the excess with the next
// row, so only kTailPadding numbers behind the last row must exist; drift_residuals() writes whole
// groups of kRows rows, so a line's stride must be rounded up to them.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/matrix.h"

namespace qkscope {

// to[stride p + i] = row i of xy (rows, 8) as a unit vector in plane p of four. A row of xy holds
// the first coordinates in the four planes, then the second ones. (0, 0) becomes (1, 0).
void unit_vectors(const double* xy, std::int64_t rows, std::complex<double>* to,
                  std::int64_t stride);

struct TurnedRows {
  const float* vectors;  // (rows, dim)
  std::size_t dim;
  std::span<const std::int64_t> order;  // row numbers in the order of the output
  std::span<const double> mean;         // (dim)
  std::span<const double> sign;         // (dim)
  std::span<const double> w;            // (dim); empty: no reflection

  static constexpr std::size_t kTailPadding = 15;  // numbers written behind the last output row
};
// Writes the rotated rows to out (order, dim).
void turn_rows(const TurnedRows& rows, double* out);
void turn_rows_reference(const TurnedRows& rows, double* out);

// Up to kLines coordinates of all rows: value = start[bucket] + sign x - reflected w, and the
// residual value - drift time.
struct DriftingRows {
  static constexpr std::int64_t kLines = 16;  // one cache line of floats
  static constexpr std::int64_t kRows = 4;    // largest group of rows that are transposed together

  const float* vectors;  // (rows, dim), at the first coordinate
  std::int64_t dim;
  std::int64_t count;                    // coordinates, at most kLines
  std::span<const std::int32_t> bucket;  // (rows)
  std::span<const double> reflected;     // (rows): 2 w . x
  std::span<const double> time;          // (rows): tokens from the bucket's mean position
  const Matrix& start;                   // (buckets, kLines)
  double sign[kLines];
  double w[kLines];
  double drift[kLines];  // per token
};
struct DriftSums {
  Matrix sum;                                // (buckets, kLines): of the values
  Matrix squares;                            // (buckets, kLines): of the squared values
  PowerSums residual[DriftingRows::kLines];  // powers of the residuals around 0
};
// Writes the residuals to out (kLines, rows) with `stride` numbers from line to line. Lines from
// `count` on hold arbitrary numbers.
DriftSums drift_residuals(const DriftingRows& rows, std::int64_t stride, double* out);
DriftSums drift_residuals_reference(const DriftingRows& rows, std::int64_t stride, double* out);

}  // namespace qkscope
