// Products of matrices, the same bytes on every CPU with fused multiply-adds: each number of a
// result is one chain of them, in the order of the inner dimension.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "numerics/matrix.h"

namespace qkscope {

inline constexpr int kPanelColumns = 8;

// out (rows, 8) = left (rows, depth) panel (depth, 8): what the other products are made of.
void multiply_panel(const double* left, std::int64_t rows, std::int64_t depth, const double* panel,
                    double* out);

// left (m, k) times right (k, n).
Matrix multiply(const Matrix& left, const Matrix& right);
// left (m, k) times the transpose of right (n, k): (m, n).
Matrix multiply_transposed(const Matrix& left, const Matrix& right);
// Adds rows^T rows of `count` rows (count, cols) to the upper triangle of sum (cols, cols), 64 rows
// at a time; what is left below the diagonal means nothing.
void add_gram(const double* rows, std::int64_t count, Matrix& sum);
// matrix times x: a dot product per row.
std::vector<double> multiply(const Matrix& matrix, std::span<const double> x);
// x^T matrix x for a symmetric matrix.
double quadratic_form(const Matrix& matrix, std::span<const double> x);

}  // namespace qkscope
