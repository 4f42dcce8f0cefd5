// Sentences about the results of a run: numbers that mean little, and findings to read first.
#pragma once

#include <string>
#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// True for fewer than ten rows (queries plus keys) per dimension, or where more than 5 % of the
// position shuffles reach the correlation along a.
bool has_few_rows(const HeadReport& head);

// Sets and logs run.warnings (heads with few rows, correlations within chance) and run.notes (most
// heads carry position on another component than PC0, so that the published class misses it).
void add_messages(AnalysisRun& run, const AnalyzeOptions& options);

}  // namespace qkscope
