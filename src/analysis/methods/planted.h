// Synthetic rows of a head with known structure: drift along one direction, separation of queries
// and keys along another, rotating planes, and noise. Tests check that analyses recover it.
#pragma once

#include <cstdint>

#include "base/numerics/matrix.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Orthonormal basis (dim, dim) of a synthetic head: row 0 is the drift axis, row 1 the separation
// axis, and each following pair of rows spans a rotation plane.
Matrix generate_planted_basis(const PlantedOptions& options);

// `rows_seed` determines positions and noise; options.seed determines the basis.
HeadRows generate_planted_rows(const PlantedOptions& options, HeadKind kind,
                               std::uint64_t rows_seed);

}  // namespace qkscope
