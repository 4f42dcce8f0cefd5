// Errors of means over heads, from heads without each group of texts.
#pragma once

#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// Of every mean that a summary gives and whose heads have replicates, for all heads and for those
// of RoPE and NoPE layers.
std::vector<MeanError> mean_errors(const AnalysisRun& run, const AnalyzeOptions& options);

}  // namespace qkscope
