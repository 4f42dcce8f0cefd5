// Output of `qkscope analyze`: head classes, means over heads, and the most positional and most
// content-focused heads.
#pragma once

#include "qkscope/analysis.h"

namespace qkscope::cli {

void print_analysis(const AnalysisRun& run, const AnalyzeOptions& options);

}  // namespace qkscope::cli
