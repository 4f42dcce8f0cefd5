// A few rows of a head on its own axes, for pictures of the head.
#pragma once

#include <string>
#include <vector>

#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// What the axes of a head are made of.
struct ScatterSource {
  const CentredRows& queries;
  const CentredRows& keys;
  const PooledMoments& pooled;
  const PcaResult* pca;                          // null: none
  const RotationResult* rotation;                // null: none
  const std::vector<std::string>& query_tokens;  // (rows) or empty
  const std::vector<std::string>& key_tokens;
};

// At most `per_side` queries, then as many keys: rows sorted by position, every n-th taken. The
// same rows whatever their order. `pairs`: planes of the complement that are kept, 0: none.
std::vector<ScatterPoint> scatter_points(const ScatterSource& source, int per_side, int pairs);

}  // namespace qkscope
