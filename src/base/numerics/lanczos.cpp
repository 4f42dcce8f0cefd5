// Leading eigenvector of a symmetric matrix by the Lanczos method.
#include <algorithm>
#include <cmath>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/numerics/matrix.h"

namespace qkscope {
namespace {

constexpr double kResidual = 1e-10;  // relative to the eigenvalue
constexpr std::int64_t kMostSteps = 48;

void scale_in_place(std::span<double> x, double factor) {
  for (double& value : x) value *= factor;
}

Matrix tridiagonal_matrix(std::span<const double> diagonal, std::span<const double> off_diagonal) {
  const auto n = std::ssize(diagonal);
  Matrix matrix(n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = as_index(i);
    matrix(i, i) = diagonal[at];
    if (i + 1 < n) matrix(i, i + 1) = matrix(i + 1, i) = off_diagonal[at];
  }
  return matrix;
}

// Orthogonalises x against the first `count` rows of the basis (Gram-Schmidt, twice for accuracy).
void orthogonalize_against(const Matrix& basis, std::int64_t count, std::span<double> x) {
  double along[kMostSteps];
  for (int round = 0; round < 2; ++round) {
    compute_row_dots(basis.row(0), count, x, along);
    for (std::int64_t i = 0; i < count; ++i) add_scaled(-along[i], {basis.row(i), x.size()}, x);
  }
}

std::vector<double> linear_combination(const Matrix& basis, std::int64_t count,
                                       const double* weights) {
  std::vector<double> sum(as_index(basis.cols));
  for (std::int64_t i = 0; i < count; ++i) add_scaled(weights[i], {basis.row(i), sum.size()}, sum);
  scale_in_place(sum, 1 / norm(sum));
  return sum;
}

}  // namespace

std::vector<double> top_eigenvector(const Matrix& matrix, std::span<const double> start) {
  QKSCOPE_ASSERT(matrix.rows == matrix.cols && matrix.cols == std::ssize(start));
  std::vector<double> next(start.begin(), start.end());
  scale_in_place(next, 1 / norm(next));
  const auto steps = std::min(kMostSteps, matrix.rows);
  Matrix basis(steps, matrix.cols);
  std::vector<double> diagonal;
  std::vector<double> off_diagonal;
  for (std::int64_t step = 1; step <= steps; ++step) {
    const auto newest = std::copy(next.begin(), next.end(), basis.row(step - 1)) - matrix.cols;
    compute_row_dots(matrix.data.data(), matrix.rows, {newest, next.size()}, next.data());
    diagonal.push_back(dot(next, {newest, next.size()}));
    orthogonalize_against(basis, step, next);
    const double rest = norm(next);
    // Check convergence every fourth step: the small eigenproblem costs about as much as a step.
    if (step % 4 == 0 || step == matrix.rows) {
      const Eigenpairs small = leading_eigenpairs(tridiagonal_matrix(diagonal, off_diagonal), 1);
      const double residual = rest * std::fabs(small.vectors(0, step - 1));
      if (residual <= kResidual * std::fabs(small.values.front()))
        return linear_combination(basis, step, small.vectors.row(0));
    }
    // The Krylov space of `start` is exhausted and may not contain the leading eigenvector.
    if (!(rest > 1e-14 * std::fabs(diagonal.front()))) break;
    off_diagonal.push_back(rest);
    scale_in_place(next, 1 / rest);
  }
  // No convergence, because eigenvalues are close or `start` is bad: use the full decomposition.
  const Eigenpairs all = symmetric_eigenpairs(matrix);
  return {all.vectors.row(0), all.vectors.row(0) + all.vectors.cols};
}

}  // namespace qkscope
