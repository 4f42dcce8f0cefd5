// The first eigenvector of a symmetric matrix close to one whose first eigenvector is known.
#pragma once

#include <span>
#include <vector>

#include "base/numerics/matrix.h"

namespace qkscope {

// Of unit length, for the largest eigenvalue, with a residual below 1e-10 of that eigenvalue:
// Lanczos from `start`, in which a nearby matrix needs a few products instead of a decomposition.
std::vector<double> top_eigenvector(const Matrix& matrix, std::span<const double> start);

}  // namespace qkscope
