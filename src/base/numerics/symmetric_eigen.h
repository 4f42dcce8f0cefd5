// Eigendecomposition of symmetric matrices.
#pragma once

#include <cstdint>
#include <vector>

#include "base/numerics/matrix.h"

namespace qkscope {

struct Eigenpairs {
  std::vector<double> values;  // descending
  Matrix vectors;              // (.., n): row i is the unit eigenvector of values[i]
};

// Returns all eigenpairs. Throws a failure error if the iteration does not converge (NaN in the
// matrix).
Eigenpairs symmetric_eigen(const Matrix& matrix);
// Returns all eigenvalues and the eigenvectors of at least the `count` largest ones. Takes about
// half the time of symmetric_eigen() for a small count.
Eigenpairs leading_eigenpairs(const Matrix& matrix, std::int64_t count);

}  // namespace qkscope
