// Of some rows of each document: how many keys hold a share of the mass and what the largest hold,
// by sorting. Group C has brackets of these for all rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/backend.h"

namespace qkscope {

// `count` rows of [0, length), evenly spaced; the last one is always among them.
std::vector<std::int64_t> spread_rows(std::int64_t length, std::int64_t count);

// keys_90 ... keys_99, then top_4 ... top_1024 of one row. pattern: (keys)
std::vector<double> sorted_values(std::span<const float> pattern);

// After attend(): the means over such rows of a document of the batch. values: (heads), each as
// sorted_values() has them.
std::vector<std::vector<double>> exact_rows(Backend& backend, const Sequence& sequence,
                                            std::int64_t longest, std::int64_t count);

}  // namespace qkscope
