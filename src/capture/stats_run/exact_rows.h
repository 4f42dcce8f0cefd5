// Exact attention mass of the largest keys, by sorting, for a few rows of each document. Group C
// computes lower and upper bounds of the same quantities for all rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/backend.h"

namespace qkscope {

// Returns `count` evenly spaced rows of [0, length), always including the last row.
std::vector<std::int64_t> spread_rows(std::int64_t length, std::int64_t count);

// Returns keys_90 ... keys_99 (number of keys that hold 90 % ... 99 % of the mass), then top_4 ...
// top_1024 (mass of the largest keys) of one row. pattern: shape (keys).
std::vector<double> sorted_values(std::span<const float> pattern);

// Returns the means of sorted_values() over `count` rows of a document, one vector per head. Must be
// called after Backend::attend().
std::vector<std::vector<double>> exact_rows(Backend& backend, const Sequence& sequence,
                                            std::int64_t longest, std::int64_t count);

}  // namespace qkscope
