// What correlations along the direction of drift reach where position means nothing: the direction
// is fitted to position, so that few rows in many dimensions always show some.
#pragma once

#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Positions are shuffled among the queries and among the keys, a is fitted to them anew, and the
// correlations along it are taken by the formulas of the analysis; options.null_draws times, seeded
// by options.seed. The same numbers whatever the order of the rows.
PositionNull shuffled_positions(const CentredRows& queries, const CentredRows& keys,
                                const PooledMoments& pooled, const RotationResult& observed,
                                const RotationOptions& options);

}  // namespace qkscope
