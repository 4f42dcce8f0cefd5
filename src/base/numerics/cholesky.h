// The square root of a covariance.
#pragma once

#include "base/numerics/matrix.h"

namespace qkscope {

// L, lower triangular, with L L^T = matrix for a symmetric matrix without negative eigenvalues.
// Directions without variance have a column of zeros.
Matrix semidefinite_cholesky(const Matrix& matrix);

}  // namespace qkscope
