// The inner loops of the analyses that are not products, for every CPU.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/methods/kernels/key_pairs.h"

namespace qkscope {

// What z of a pair of keys is made of: the difference of their scores, how it changes per token,
// and the variance of a query's preference, the sum of weights times the squares of the keys'
// difference.
struct PairModel {
  const KeyTile& keys;
  const Matrix& scores;           // (keys, columns), and kTileColumns numbers behind the last row
  std::span<const double> moves;  // (keys): of a score, per token
  const Matrix& weights;          // (dim, columns and at least kTileColumns more)
};

inline constexpr std::int64_t kTileColumns = 16;
inline constexpr std::int64_t kTilePairs = 16;  // of a PairTile, at most

// start (tiles, pairs, stride): z at the column's own position; slope: its change per token, not
// taken where it is null. Both are 0 where the variance is. Up to kTileColumns numbers behind the
// last tile's are written in `start`, which mean nothing.
void z_lines(const PairModel& model, std::span<const Pair> pairs, std::span<const PairTile> tiles,
             double* start, double* slope);

// to[stride p + i] = row i of xy (rows, 8) as a unit vector in plane p of four: the x of four
// planes come first, then their y. (0, 0) becomes (1, 0).
void unit_vectors(const double* xy, std::int64_t rows, std::complex<double>* to,
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
  std::span<const double> direction;    // (dim), in turned coordinates

  static constexpr std::size_t kBehind = 15;  // numbers behind the last row, which are written, too
};
// out (order, dim); along (order): row . direction.
void turn_rows(const TurnedRows& rows, double* out, double* along);

// Some coordinates of rows that drift, in a query model's turned coordinates: start + sign x -
// reflected w with the start of each bucket, so that values are around 0, and `drift` per token.
struct DriftingRows {
  static constexpr std::int64_t kLines = 16;  // a cache line of every row
  static constexpr std::int64_t kRows = 4;    // that are taken together, at most

  const float* vectors;  // (rows, dim), at the first coordinate
  std::int64_t dim;
  std::int64_t count;                    // coordinates that are there
  std::span<const std::int32_t> bucket;  // (rows)
  std::span<const double> reflected;     // (rows)
  std::span<const double> time;          // (rows): tokens, whose mean is 0 in each bucket
  const Matrix& start;                   // (buckets, kLines)
  double sign[kLines];
  double w[kLines];
  double drift[kLines];
};
struct DriftSums {
  Matrix sum;                                // (buckets, kLines): of the values
  Matrix squares;                            // likewise
  PowerSums residual[DriftingRows::kLines];  // around 0
};
// out (kLines, rows), lines `stride` numbers apart, whole kRows at least: what is left of the
// values without their drift. Lines of coordinates that are not there mean nothing.
DriftSums take_drift(const DriftingRows& rows, std::int64_t stride, double* out);

}  // namespace qkscope
