// Where rows are too few for the dimensions they are in, so that numbers mean little.
#pragma once

#include <string>
#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// Fewer than ten rows, queries and keys together, per dimension; or a correlation with position
// along a that one of twenty shuffles reaches.
bool has_few_rows(const HeadReport& head);

// Sentences for whoever reads the numbers; none when all is well.
std::vector<std::string> warnings_of(const AnalysisRun& run);

}  // namespace qkscope
