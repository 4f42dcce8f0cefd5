// Matrix products in float64, and in float32 for matrices with few columns. Every element is one
// chain of fused multiply-adds in the order of the inner dimension, so all targets with fused
// multiply-adds produce identical bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/matrix.h"

namespace qkscope {

inline constexpr int kPanelColumns = 8;

// Matrix product: out (rows, 8) = left (rows, depth) times panel (depth, 8).
void multiply_panel(const double* left, std::int64_t rows, std::int64_t depth, const double* panel,
                    double* out);

// Product of float32 matrices for few columns: out (rows, columns) = left (rows, depth) times right
// (depth, columns). Rows of `right` are `stride` numbers apart. Reads up to kFewColumnsPadding
// numbers past the last column of each row of `right`, and overwrites as many past the last row of
// `out`.
inline constexpr std::int64_t kFewColumnsPadding = 16;
void multiply_few_columns(const float* left, std::int64_t rows, std::int64_t depth,
                          const float* right, std::int64_t stride, std::int64_t columns,
                          float* out);

// Returns left (m, k) times right (k, n).
Matrix multiply(const Matrix& left, const Matrix& right);
// Returns left (m, k) times the transpose of right (n, k), shape (m, n).
Matrix multiply_by_transpose(const Matrix& left, const Matrix& right);
// Adds the Gram matrix rows^T rows, for `rows` of shape (count, cols), to the upper triangle of sum
// (cols, cols), 64 rows at a time. Elements below the diagonal are undefined afterwards.
void add_gram(const double* rows, std::int64_t count, Matrix& sum);
// A weighted sum of the centred rows for add_centred_gram_and_sums(): sum += weight^T rows.
struct WeightedRowSum {
  std::span<const double> weight;  // (rows)
  std::span<double> sum;           // (cols)
};
// Like add_gram(), for the selected `rows` of vectors (.., cols): subtracts `mean` (cols) from each
// row in float64. Also adds the weighted sums of the centred rows to `weighted`.
void add_centred_gram_and_sums(const float* vectors, std::span<const std::int64_t> rows,
                               std::span<const double> mean, Matrix& sum,
                               std::span<const WeightedRowSum> weighted);
std::vector<double> multiply(const Matrix& matrix, std::span<const double> x);
// Returns x^T matrix x for a symmetric matrix.
double quadratic_form(const Matrix& matrix, std::span<const double> x);

}  // namespace qkscope
