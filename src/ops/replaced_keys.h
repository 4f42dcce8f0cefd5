// Keys as a quantised or pruned cache would hold them, for the divergence that it causes.
#pragma once

#include <cstdint>
#include <vector>

#include "qkscope/statistics.h"

namespace qkscope {

// The keys of one head and document.
struct KeyRows {
  const float* values;  // row j at values + j * stride
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t dim;
};

struct ReplacedKeys {
  std::vector<float> keys;  // (rows, dim)
};

// Rounded to the scheme and back. What shares a scale: FP8 absmax / 448; int8 and int4 the range
// from smallest to largest in 255 or 15 steps.
ReplacedKeys replace_keys(const KeyRows& keys, const KeyReplacement& replacement);

// (rows) 1 for the share of keys with the smallest Euclidean length; of equal ones the earlier.
std::vector<char> shortest_keys(const KeyRows& keys, double share);

}  // namespace qkscope
