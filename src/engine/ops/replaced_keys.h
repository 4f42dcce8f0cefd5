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

// Rounded to E4M3 by a scale that was found before, and back: what is beyond 448 scales becomes
// 448.
ReplacedKeys round_to_fp8(const KeyRows& keys, float scale);

// (rows) 1 for the share of keys with the smallest Euclidean length; of equal ones the earlier.
std::vector<char> shortest_keys(const KeyRows& keys, double share);
// The same for the share with the best score of q-filters, the largest -(filter . key) as kvpress
// has it. filter: (dim)
std::vector<char> filtered_keys(const KeyRows& keys, const float* filter, double share);

}  // namespace qkscope
