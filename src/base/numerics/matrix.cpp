#include "base/numerics/matrix.h"

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

}  // namespace qkscope
