// What statistics know beside the analyses, as tables of results: one row per head, over all rows.
#pragma once

#include <string>
#include <vector>

#include "qkscope/analysis.h"
#include "qkscope/statistics.h"

namespace qkscope {

// attention (groups B and C), distance (group C) and key_channels (group A), as far as they exist,
// of the chosen query heads.
std::vector<ResultTable> statistics_tables(const Statistics& statistics, const std::string& label,
                                           const std::vector<HeadId>& queries);

}  // namespace qkscope
