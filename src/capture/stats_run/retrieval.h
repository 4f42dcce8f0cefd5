// Retrieval scores: which heads copy the answer to a question out of a needle in a long text.
#pragma once

#include <span>
#include <vector>

#include "capture/stats_run/stats_plan.h"
#include "engine/device/backend.h"

namespace qkscope {

// What one step of an answer asks of a row of scores.
struct NeedleStep {
  std::span<const std::int32_t> tokens;  // of the text
  std::int64_t needle_begin = 0;
  std::int64_t needle_end = 0;
  std::int32_t answer = 0;  // the token that the row predicts
};

// 1 / (length of the needle) where the largest score (keys) lies in the needle, on the answer's
// token; else 0. Over the steps of an answer the sum is a head's score.
double retrieval_step(std::span<const float> scores, const NeedleStep& step);

// Runs the trials of stats.retrieval, one after another; none where there is no such file. A line
// of the file is {"text", "needle" or "needle_start" and "needle_end", "answer"}: the needle as
// text or as tokens [start, end) of the text, the answer as text or as a list of token ids.
std::vector<RetrievalTrial> run_trials(const StatsRunPlan& plan, Backend& backend);

// How many trials the file has; 0 without one. A line that is no trial is bad input.
std::int64_t count_trials(const StatsRunPlan& plan);

}  // namespace qkscope
