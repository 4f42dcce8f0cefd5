// Permutation null of the correlations along the drift direction. The direction is fitted to
// position, so few rows in many dimensions correlate with position by chance.
#pragma once

#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Permutation test. Each of options.null_draws draws shuffles the positions of queries and of keys
// separately, refits the drift axis and computes the correlations along it. The result depends on
// options.seed, not on row order.
PositionNull sample_shuffled_positions(const CentredRows& queries, const CentredRows& keys,
                                       const PooledMoments& pooled, const RotationResult& observed,
                                       const RotationOptions& options);

}  // namespace qkscope
