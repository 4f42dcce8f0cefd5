// Coordinates of a few sampled rows of a head, for scatter plots.
#pragma once

#include <string>
#include <vector>

#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Rows of one head, and the analyses that define the axes of the scatter plots.
struct ScatterSource {
  const CentredRows& queries;
  const CentredRows& keys;
  const PooledMoments& pooled;
  const PcaResult* pca;                          // null: not run
  const RotationResult* rotation;                // null: not run
  const std::vector<std::string>& query_tokens;  // shape (rows), or empty
  const std::vector<std::string>& key_tokens;
};

// Returns at most `per_side` queries, then as many keys, at even steps in the order of position.
// The selection does not depend on the order of rows. `pairs`: complement planes with coordinates.
std::vector<ScatterPoint> scatter_points(const ScatterSource& source, int per_side, int pairs);

}  // namespace qkscope
