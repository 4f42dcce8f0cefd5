// The inner loops of the analyses that are not products, for every CPU.
#pragma once

#include <cstdint>
#include <span>

#include "analysis/kernels/key_pairs.h"
#include "numerics/spectrum.h"

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

// to[place[i]] = row i of xy (rows, 8), moved by shift (8), as unit vectors in four planes: the x
// of four planes come first, then their y. (0, 0) becomes (1, 0).
void unit_vectors(const double* xy, const double* shift, std::span<const std::uint32_t> place,
                  FourValues* to);

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

// Some coordinates of rows (order, dim), taken in some order, in a query model's turned coordinates:
// sign (x - mean) - reflected w.
struct TurnedLines {
  static constexpr std::int64_t kLines = 16;  // a cache line of every row

  const float* vectors;  // (rows, dim), at the first coordinate
  std::int64_t dim;
  std::span<const std::int64_t> order;  // (rows)
  std::span<const double> reflected;    // (rows), in order
  std::int64_t count;                   // coordinates that are there
  double sign[kLines];
  double mean[kLines];
  double w[kLines];
};
// out (kLines, rows), lines `stride` numbers apart: at least one more than there are rows. Those of
// coordinates that are not there mean nothing.
void turn_lines(const TurnedLines& lines, std::int64_t stride, double* out);

// A stretch of a line that drifts: around `start` with `drift` per token.
struct DriftingLine {
  std::span<double> values;
  std::span<const double> time;  // tokens
  double start;
  double drift;
};
struct DriftSums {
  double sum = 0;  // of the values around the start
  double squares = 0;
  PowerSums residual;  // around 0
};
// The values become their residuals: value - start - drift time.
DriftSums take_drift(const DriftingLine& line);

}  // namespace qkscope
