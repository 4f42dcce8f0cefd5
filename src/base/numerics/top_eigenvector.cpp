#include <algorithm>
#include <cmath>

#include "base/core/error.h"
#include "base/numerics/products.h"
#include "base/numerics/symmetric_eigen.h"

namespace qkscope {
namespace {

constexpr double kResidual = 1e-10;  // relative to the eigenvalue
constexpr std::int64_t kMostSteps = 48;

void scale(std::span<double> x, double factor) {
  for (double& value : x) value *= factor;
}

// Builds the tridiagonal matrix of the Lanczos recurrence.
Matrix tridiagonal(std::span<const double> diagonal, std::span<const double> off_diagonal) {
  const auto n = std::ssize(diagonal);
  Matrix matrix(n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    matrix(i, i) = diagonal[at];
    if (i + 1 < n) matrix(i, i + 1) = matrix(i + 1, i) = off_diagonal[at];
  }
  return matrix;
}

// Orthogonalises x against the basis (Gram-Schmidt, twice for accuracy).
void remove_basis(const std::vector<std::vector<double>>& basis, std::span<double> x) {
  for (int round = 0; round < 2; ++round)
    for (const auto& axis : basis) add_scaled(-dot(x, axis), axis, x);
}

std::vector<double> combine(const std::vector<std::vector<double>>& basis, const double* weights) {
  std::vector<double> sum(basis.front().size());
  for (std::size_t i = 0; i < basis.size(); ++i) add_scaled(weights[i], basis[i], sum);
  scale(sum, 1 / norm(sum));
  return sum;
}

}  // namespace

std::vector<double> top_eigenvector(const Matrix& matrix, std::span<const double> start) {
  QKSCOPE_ASSERT(matrix.rows == matrix.cols && matrix.cols == std::ssize(start));
  std::vector<double> next(start.begin(), start.end());
  scale(next, 1 / norm(next));
  std::vector<std::vector<double>> basis;
  std::vector<double> diagonal;
  std::vector<double> off_diagonal;
  const auto steps = std::min(kMostSteps, matrix.rows);
  for (std::int64_t step = 1; step <= steps; ++step) {
    basis.push_back(next);
    next = multiply(matrix, basis.back());
    diagonal.push_back(dot(next, basis.back()));
    remove_basis(basis, next);
    const double rest = norm(next);
    // Check convergence every fourth step: the small eigenproblem costs about as much as a step.
    if (step % 4 == 0 || step == matrix.rows) {
      const Eigenpairs small = symmetric_eigen(tridiagonal(diagonal, off_diagonal));
      const double residual = rest * std::fabs(small.vectors(0, step - 1));
      if (residual <= kResidual * std::fabs(small.values.front()))
        return combine(basis, small.vectors.row(0));
    }
    // The Krylov space of `start` is exhausted and may not contain the leading eigenvector.
    if (!(rest > 1e-14 * std::fabs(diagonal.front()))) break;
    off_diagonal.push_back(rest);
    scale(next, 1 / rest);
  }
  // No convergence (close eigenvalues or a bad start): use the full decomposition.
  const Eigenpairs all = symmetric_eigen(matrix);
  return {all.vectors.row(0), all.vectors.row(0) + all.vectors.cols};
}

}  // namespace qkscope
