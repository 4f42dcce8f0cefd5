// What `qkscope analyze` prints: classes of heads, means over heads, and the heads at both ends.
#pragma once

#include "qkscope/analysis.h"

namespace qkscope::cli {

void print_analysis(const AnalysisRun& run, const AnalyzeOptions& options);

}  // namespace qkscope::cli
