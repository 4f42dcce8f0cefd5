#include "base/numerics/matrix.h"

#include <cmath>

#include "base/core/error.h"

namespace qkscope {

void mirror_upper_triangle(Matrix& matrix) {
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < i; ++j) matrix(i, j) = matrix(j, i);
}

double trace(const Matrix& matrix) {
  double sum = 0;
  for (std::int64_t i = 0; i < matrix.rows; ++i) sum += matrix(i, i);
  return sum;
}

std::vector<double> householder_vector(std::span<const double> from, std::span<const double> to) {
  std::vector<double> w;
  for (std::size_t i = 0; i < from.size(); ++i) w.push_back(from[i] - to[i]);
  const double length = norm(w);
  if (length < 1e-15) return {};
  for (double& x : w) x /= length;
  return w;
}

void apply_householder(std::span<double> x, std::span<const double> w) {
  if (w.empty()) return;
  add_scaled(-2 * dot(x, w), w, x);
}

void reflect_rows(Matrix& rows, std::span<const double> w) {
  for (std::int64_t i = 0; i < rows.rows; ++i) apply_householder({rows.row(i), w.size()}, w);
}

Matrix semidefinite_cholesky(const Matrix& matrix) {
  QKSCOPE_ASSERT(matrix.rows == matrix.cols);
  const auto n = matrix.rows;
  Matrix root(n, n);
  std::vector<double> known(as_index(n));
  for (std::int64_t j = 0; j < n; ++j) {
    // Columns j and above of the Cholesky factor are still 0, so dot products of whole rows include
    // only the first j elements.
    const std::span<const double> row(root.row(j), known.size());
    compute_row_dots(row.data(), n - j, row, known.data());
    // A pivot below the threshold is a rounding error: this row depends linearly on previous rows.
    const double rest = matrix(j, j) - known[0];
    if (!(rest > 1e-13 * matrix(j, j))) continue;
    root(j, j) = std::sqrt(rest);
    for (auto i = j + 1; i < n; ++i)
      root(i, j) = (matrix(i, j) - known[as_index(i - j)]) / root(j, j);
  }
  return root;
}

}  // namespace qkscope
