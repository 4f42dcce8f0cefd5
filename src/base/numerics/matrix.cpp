#include "base/numerics/matrix.h"

#include <algorithm>
#include <cmath>

#include "base/core/error.h"

namespace qkscope {

void fill_lower_triangle(Matrix& matrix) {
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < i; ++j) matrix(i, j) = matrix(j, i);
}

double trace(const Matrix& matrix) {
  double sum = 0;
  for (std::int64_t i = 0; i < matrix.rows; ++i) sum += matrix(i, i);
  return sum;
}

std::vector<double> householder_between(std::span<const double> from, std::span<const double> to) {
  std::vector<double> w;
  for (std::size_t i = 0; i < from.size(); ++i) w.push_back(from[i] - to[i]);
  const double length = norm(w);
  if (length < 1e-15) return {};
  for (double& x : w) x /= length;
  return w;
}

void reflect(std::span<double> x, std::span<const double> w) {
  if (w.empty()) return;
  add_scaled(-2 * dot(x, w), w, x);
}

void reflect_rows(Matrix& rows, std::span<const double> w) {
  for (std::int64_t i = 0; i < rows.rows; ++i) reflect({rows.row(i), w.size()}, w);
}

Matrix semidefinite_cholesky(const Matrix& matrix) {
  QKSCOPE_ASSERT(matrix.rows == matrix.cols);
  const auto n = matrix.rows;
  Matrix root(n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    // A smaller remainder is rounding error: the previous rows span this direction.
    const double negligible = 1e-13 * matrix(i, i);
    for (std::int64_t j = 0; j <= i; ++j) {
      const auto before = static_cast<std::size_t>(j);
      const double rest = matrix(i, j) - dot(std::span<const double>(root.row(i), before),
                                             std::span<const double>(root.row(j), before));
      if (j == i)
        root(i, i) = rest > negligible ? std::sqrt(rest) : 0;
      else
        root(i, j) = root(j, j) > 0 ? rest / root(j, j) : 0;
    }
  }
  return root;
}

}  // namespace qkscope
