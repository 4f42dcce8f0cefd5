#include <cmath>

#include "analysis/rotation.h"

namespace qkscope {

std::vector<double> householder_between(std::span<const double> from, std::span<const double> to) {
  std::vector<double> w;
  for (std::size_t i = 0; i < from.size(); ++i) w.push_back(from[i] - to[i]);
  const double length = norm(w);
  if (length < 1e-15) return {};
  for (double& x : w) x /= length;
  return w;
}

void reflect_rows(Matrix& rows, std::span<const double> w) {
  for (std::int64_t i = 0; i < rows.rows; ++i) reflect({rows.row(i), w.size()}, w);
}

void reflect(std::span<double> x, std::span<const double> w) {
  if (w.empty()) return;
  const double twice = 2 * dot(x, w);
  for (std::size_t j = 0; j < w.size(); ++j) x[j] -= twice * w[j];
}

}  // namespace qkscope
