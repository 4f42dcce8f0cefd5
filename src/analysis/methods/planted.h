// Rows of heads with known structure: a drift along one direction, queries apart from keys along
// another, planes that turn with position, noise. What is planted is what the analyses must find.
#pragma once

#include <cstdint>

#include "base/numerics/matrix.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Directions of a planted head: rows 0 and 1 are a and b, then two per plane. (dim, dim)
// orthonormal.
Matrix planted_basis(const PlantedOptions& options);

// `rows_seed` decides positions and noise; the options' seed decides the basis.
HeadRows plant_rows(const PlantedOptions& options, HeadKind kind, std::uint64_t rows_seed);

}  // namespace qkscope
