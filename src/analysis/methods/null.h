// Permutation null of the correlations along the drift direction. The direction is fitted to
// position, so few rows in many dimensions correlate with position by chance.
#pragma once

#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Permutation null: options.null_draws times, shuffles positions among queries and among keys,
// refits the drift axis `a` and computes the correlations along it. Seeded by options.seed; the
// result does not depend on row order.
PositionNull sample_position_null(const CentredRows& queries, const CentredRows& keys,
                                  const PooledMoments& pooled, const RotationResult& observed,
                                  const RotationOptions& options);

}  // namespace qkscope
