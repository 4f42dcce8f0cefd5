// Leading eigenvector by the Lanczos method with a good starting vector.
#pragma once

#include <span>
#include <vector>

#include "base/numerics/matrix.h"

namespace qkscope {

// Returns the unit eigenvector of the largest eigenvalue of a symmetric matrix, with a residual
// below 1e-10 of the eigenvalue. A `start` close to the eigenvector needs only a few matrix-vector
// products.
std::vector<double> top_eigenvector(const Matrix& matrix, std::span<const double> start);

}  // namespace qkscope
