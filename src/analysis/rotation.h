// Planar rotation: the direction a along which a head's rows drift with position, the direction b
// that separates queries from keys, and what is left when both are taken away.
#pragma once

#include "analysis/kernels/plane_units.h"
#include "analysis/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// What the moments alone say: a, b and the numbers along them; nothing of the complement, no
// frequencies, no null. `near_b` is the b of a head with nearly the same rows, which is quicker for
// b from eigenvectors.
RotationResult drift_and_separation(const Moments& queries, const Moments& keys,
                                    const PooledMoments& pooled, const RotationOptions& options,
                                    std::span<const double> near_b = {});

// The same with the complement's axes and variances. What needs rows is NaN: frequencies, turning,
// the null, and how well queries and keys are told apart on planes where their means differ.
RotationResult rotation_from_moments(const Moments& queries, const Moments& keys,
                                     const PooledMoments& pooled, const RotationOptions& options);

// `units` is memory for the complement's planes that may be used again for the next head; null: its
// own.
RotationResult planar_rotation(const CentredRows& queries, const CentredRows& keys,
                               const PooledMoments& pooled, const RotationOptions& options,
                               PlaneUnits* units = nullptr);

}  // namespace qkscope
