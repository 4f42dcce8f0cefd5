#include "base/numerics/cholesky.h"

#include <algorithm>
#include <cmath>

#include "base/core/error.h"

namespace qkscope {

Matrix semidefinite_cholesky(const Matrix& matrix) {
  QKSCOPE_ASSERT(matrix.rows == matrix.cols);
  const auto n = matrix.rows;
  Matrix root(n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    // What rounding leaves of a direction that the rows before span.
    const double nothing = 1e-13 * matrix(i, i);
    for (std::int64_t j = 0; j <= i; ++j) {
      const auto before = static_cast<std::size_t>(j);
      const double rest = matrix(i, j) - dot(std::span<const double>(root.row(i), before),
                                             std::span<const double>(root.row(j), before));
      if (j == i)
        root(i, i) = rest > nothing ? std::sqrt(rest) : 0;
      else
        root(i, j) = root(j, j) > 0 ? rest / root(j, j) : 0;
    }
  }
  return root;
}

}  // namespace qkscope
