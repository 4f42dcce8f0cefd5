// Orthogonal complement of the drift axis a and the separation axis b of a head, and the planes
// within it in which the rows rotate with position.
#pragma once

#include <span>
#include <vector>

#include "analysis/methods/kernels/plane_units.h"
#include "analysis/methods/moments.h"
#include "base/numerics/frequency_search.h"
#include "qkscope/analysis.h"

namespace qkscope {

struct OrthogonalComplement {
  std::vector<double> variance;  // (dim - 2) sums of squares, descending
  Matrix axes;                   // (.., dim), orthonormal, orthogonal to a and b
  // Largest |correlation| between position and an axis of the orthogonal complement. It is 0 up to
  // rounding errors, because all linear drift is along the drift axis `a`.
  double position_r = 0;
};

// Returns up to `wanted` principal axes of the pooled rows, orthogonal to directions `a` and `b`.
OrthogonalComplement orthogonal_complement(const PooledMoments& pooled, std::span<const double> a,
                                           std::span<const double> b, std::int64_t wanted);

// Inputs of the search for planes in which the rows of a head rotate with position.
struct PlaneSearchInput {
  FrequencySearch& frequencies;   // for the positions of all queries, then all keys
  const PlaneUnitVectors& units;  // directions of the same rows, in the order of `frequencies`
};

// Returns the planes spanned by axes 2i and 2i+1 with the fields that moments determine: variance
// shares, and separability 0.5 where queries and keys have the same mean. Other fields are NaN.
std::vector<ComplementPair> complement_planes(const PooledMoments& pooled,
                                              const OrthogonalComplement& complement,
                                              const RotationOptions& options);

// Sets angle_r, omega and separability of each plane from the rows. `axes`: two rows per plane.
void search_plane_rotations(const CentredRows& queries, const CentredRows& keys,
                            const PooledMoments& pooled, const Matrix& axes,
                            PlaneSearchInput search, const RotationOptions& options,
                            std::vector<ComplementPair>& planes);

}  // namespace qkscope
