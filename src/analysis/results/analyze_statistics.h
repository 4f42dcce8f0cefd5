// The analyses on statistics over every token: every number that follows from the sums.
#pragma once

#include <string>

#include "qkscope/analysis.h"

namespace qkscope {

// A finished folder of statistics.
bool is_statistics_folder(const std::string& folder);

// options.data_root is such a folder. Options that only rows give a meaning are bad input.
AnalysisRun analyze_statistics(const AnalyzeOptions& options);

}  // namespace qkscope
