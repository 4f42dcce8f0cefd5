// Products of matrices, the same bytes on every CPU with fused multiply-adds: each number of a
// result is one chain of them, in the order of the inner dimension.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/matrix.h"

namespace qkscope {

inline constexpr int kPanelColumns = 8;

// Rows on the left of a product lie four side by side: (rows / 4, depth, 4), filled up with rows of
// zeros to whole eights.
inline constexpr int kSideBySide = 4;
inline constexpr std::int64_t filled_up(std::int64_t rows) {
  return (rows + 7) / 8 * 8;
}
// out (filled_up(rows), cols), four rows side by side, = rows, each (cols), in float64 minus mean.
void centre_side_by_side(std::span<const float* const> rows, std::span<const double> mean,
                         double* out);

// out (filled_up(rows), 8) = left (rows, depth), four rows side by side, times panel (depth, 8):
// what the other products are made of.
void multiply_panel(const double* left, std::int64_t rows, std::int64_t depth, const double* panel,
                    double* out);

// out (rows, columns) = left (rows, depth) right (depth, columns) for a few columns. Rows of
// `right` are `stride` numbers apart; up to kPanelColumns - 1 numbers behind the last column of
// each are read, and as many behind the last row of `out` are written.
void multiply_narrow(const double* left, std::int64_t rows, std::int64_t depth, const double* right,
                     std::int64_t stride, std::int64_t columns, double* out);

// left (m, k) times right (k, n).
Matrix multiply(const Matrix& left, const Matrix& right);
// left (m, k) times the transpose of right (n, k): (m, n).
Matrix multiply_transposed(const Matrix& left, const Matrix& right);
// Adds rows^T rows of `count` rows (count, cols) to the upper triangle of sum (cols, cols), 64 rows
// at a time; what is left below the diagonal means nothing.
void add_gram(const double* rows, std::int64_t count, Matrix& sum);
// A sum over rows, each times its own weight.
struct WeightedSum {
  std::span<const double> weight;  // (rows)
  std::span<double> sum;           // (cols)
};
// The same for rows of vectors (.., cols) by their numbers, in float64 minus `mean` (cols); adds to
// the weighted sums of these, too.
void add_centred_gram(const float* vectors, std::span<const std::int64_t> rows,
                      std::span<const double> mean, Matrix& sum,
                      std::span<const WeightedSum> weighted);
// matrix times x: a dot product per row.
std::vector<double> multiply(const Matrix& matrix, std::span<const double> x);
// x^T matrix x for a symmetric matrix.
double quadratic_form(const Matrix& matrix, std::span<const double> x);

}  // namespace qkscope
