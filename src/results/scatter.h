// A few rows of a head on its principal axes, for pictures of the head.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/pca.h"
#include "analysis/rotation.h"
#include "qkscope/captures.h"

namespace qkscope {

// Coordinates that were not computed are NaN.
struct ScatterPoint {
  HeadKind side = HeadKind::query;
  std::int32_t position = 0;
  double pc0 = 0;  // around the pooled mean
  double pc1 = 0;
  double a = 0;  // of the vector itself, as mu_q_a
  double b = 0;
  double c0 = 0;  // first pair of the complement, around the pooled mean
  double c1 = 0;
};

// At most `per_side` queries, then as many keys: rows sorted by position, every n-th taken. The
// same rows whatever their order. `pca` and `rotation` may be null.
std::vector<ScatterPoint> scatter_points(const CentredRows& queries, const CentredRows& keys,
                                         const PooledMoments& pooled, const PcaResult* pca,
                                         const RotationResult* rotation, int per_side);

}  // namespace qkscope
