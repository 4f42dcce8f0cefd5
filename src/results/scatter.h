// A few rows of a head on its own axes, for pictures of the head.
#pragma once

#include <vector>

#include "analysis/moments.h"
#include "qkscope/analysis.h"
#include "analysis/pca.h"
#include "analysis/rotation.h"
#include "qkscope/captures.h"

namespace qkscope {

// At most `per_side` queries, then as many keys: rows sorted by position, every n-th taken. The
// same rows whatever their order. `pca` and `rotation` may be null.
std::vector<ScatterPoint> scatter_points(const CentredRows& queries, const CentredRows& keys,
                                         const PooledMoments& pooled, const PcaResult* pca,
                                         const RotationResult* rotation, int per_side);

}  // namespace qkscope
