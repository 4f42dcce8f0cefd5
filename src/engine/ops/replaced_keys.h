// Keys as a quantised or pruned KV cache would hold them, for the resulting KL divergence.
#pragma once

#include <cstdint>
#include <vector>

#include "qkscope/statistics.h"

namespace qkscope {

// Keys of one head and document, shape (rows, dim).
struct KeyRows {
  const float* values;  // row j at values + j * stride
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t dim;
};

// Returns the keys quantised and dequantised, shape (rows, dim). Values that share a scale use
// absmax / 448 for FP8, and the range from minimum to maximum in 255 or 15 steps for int8 and int4.
std::vector<float> replace_keys(const KeyRows& keys, const KeyReplacement& replacement);

// Returns the keys (rows, dim) rounded to FP8 E4M3 with a given scale, saturating at 448 scales.
std::vector<float> round_to_fp8(const KeyRows& keys, float scale);

// Mask (rows): 1 for the given fraction of keys with the smallest L2 norm; ties: the lower index.
std::vector<float> shortest_keys(const KeyRows& keys, double share);
// Shape (rows). Mask: 1 for the given fraction of keys with the best Q-filter score, the largest
// -(filter . key) as in kvpress. filter: (dim).
std::vector<float> filtered_keys(const KeyRows& keys, const float* filter, double share);

}  // namespace qkscope
