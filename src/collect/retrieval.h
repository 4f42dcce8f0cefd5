// Retrieval scores: which heads copy the answer to a question out of a needle in a long text.
#pragma once

#include <vector>

#include "collect/stats_plan.h"
#include "device/backend.h"

namespace qkscope {

// Runs the trials of stats.retrieval, one after another; none where there is no such file. A line
// of the file is {"text", "needle" or "needle_start" and "needle_end", "answer"}: the needle as
// text or as tokens [start, end) of the text, the answer as text or as a list of token ids.
std::vector<RetrievalTrial> run_trials(const StatsRunPlan& plan, Backend& backend);

// How many trials the file has; 0 without one. A line that is no trial is bad input.
std::int64_t count_trials(const StatsRunPlan& plan);

}  // namespace qkscope
