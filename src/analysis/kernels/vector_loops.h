// The inner loops of the analyses that are not products, for every CPU.
#pragma once

#include <complex>
#include <cstdint>
#include <span>

#include "analysis/kernels/key_pairs.h"

namespace qkscope {

// variance (pairs, columns): the sums of weights (dim, columns) times (x - y)^2 of pairs of rows of
// `keys`. Rows of the weights are `stride` numbers apart; up to 7 numbers behind the last column of
// each are read.
struct ColumnWeights {
  const double* first;
  std::int64_t stride;
  std::int64_t columns;
};
void weighted_squares(const Matrix& keys, std::span<const Pair> pairs, const ColumnWeights& weights,
                      double* variance);

// What z is made of: the difference of two keys' scores, and how it changes per token.
struct ScoredPairs {
  const Matrix& scores;           // (keys, all columns)
  std::span<const double> moves;  // (keys): of a score, per token
  std::span<const Pair> pairs;
  std::int64_t first_column;
  std::int64_t columns;
};
// start (pairs, columns) comes as variances and becomes z at the column's own position; slope
// (pairs, columns) becomes its change per token. 0 where the variance is.
void z_lines(const ScoredPairs& scored, double* start, double* slope);

// to[stride p + place[i]] = row i of xy (rows, 8) as a unit vector in plane p of four: the x of
// four planes come first, then their y. (0, 0) becomes (1, 0).
void unit_vectors(const double* xy, std::span<const std::uint32_t> place, std::complex<double>* to,
                  std::int64_t stride);

// Rows (order, dim), taken in some order, in a query model's turned coordinates: x = sign (row -
// mean), then x - 2 w (w.x).
struct TurnedRows {
  const float* vectors;  // (rows, dim)
  std::size_t dim;
  std::span<const std::int64_t> order;  // (rows)
  std::span<const double> mean;         // (dim)
  std::span<const double> sign;         // (dim)
  std::span<const double> w;            // (dim); empty: not reflected
};
// out (order, dim)
void turn_rows(const TurnedRows& rows, double* out);

// Sixteen coordinates of rows (order, dim), taken in some order, in a query model's turned
// coordinates: sign (x - mean) - reflected w.
struct TurnedLines {
  static constexpr std::int64_t kLines = 16;

  const float* vectors;  // (rows, dim), at the first coordinate
  std::int64_t dim;
  std::span<const std::int64_t> order;  // (rows)
  std::span<const double> reflected;    // (rows), in order
  std::int64_t count;                   // coordinates that are there
  double sign[kLines];
  double mean[kLines];
  double w[kLines];
};
// out (count, rows)
void turn_lines(const TurnedLines& lines, double* out);

}  // namespace qkscope
