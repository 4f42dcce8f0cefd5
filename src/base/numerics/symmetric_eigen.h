// Eigendecomposition of symmetric matrices, and their leading eigenvector by the Lanczos method.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/matrix.h"

namespace qkscope {

struct Eigenpairs {
  std::vector<double> values;  // descending
  Matrix vectors;              // (.., n): row i is the unit eigenvector of values[i]
};

// Returns all eigenpairs. Throws a failure error if the iteration does not converge (NaN).
Eigenpairs symmetric_eigen(const Matrix& matrix);
// Returns all eigenvalues and the eigenvectors of at least the `count` largest ones (0: eigenvalues
// only). For a small count, takes about half the time of symmetric_eigen().
Eigenpairs leading_eigenpairs(const Matrix& matrix, std::int64_t count);

// Returns the unit eigenvector of the largest eigenvalue of a symmetric matrix, with a residual
// below 1e-10 of the eigenvalue. A `start` close to the eigenvector needs only a few matrix-vector
// products.
std::vector<double> top_eigenvector(const Matrix& matrix, std::span<const double> start);

}  // namespace qkscope
