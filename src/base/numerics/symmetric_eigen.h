// Eigenvectors of symmetric matrices: principal components, axes of the complement.
#pragma once

#include <cstdint>
#include <vector>

#include "base/numerics/matrix.h"

namespace qkscope {

struct Eigenpairs {
  std::vector<double> values;  // descending
  Matrix vectors;              // (.., n): row i belongs to values[i], unit length
};

// All of them; failure when the iteration does not converge (a matrix with NaN in it).
Eigenpairs symmetric_eigen(const Matrix& matrix);
// All values, and the vectors of the `count` largest: half the time where these are few.
Eigenpairs leading_eigenpairs(const Matrix& matrix, std::int64_t count);

}  // namespace qkscope
