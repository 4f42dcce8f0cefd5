// Retrieval scores: measures which heads copy an answer from a needle in a long text.
#pragma once

#include <span>
#include <vector>

#include "capture/stats_run/stats_plan.h"
#include "engine/device/backend.h"

namespace qkscope {

// One decoding step of an answer.
struct NeedleDecodingStep {
  std::span<const std::int32_t> tokens;  // of the text
  std::int64_t needle_begin = 0;
  std::int64_t needle_end = 0;
  std::int32_t answer = 0;  // the token that the row predicts
};

// Returns 1 / (needle length) if the key with the largest of `scores` (keys) lies in the needle and
// is the answer's token, else 0. The score of a head is the sum over all steps of an answer.
double score_retrieval_step(std::span<const float> scores, const NeedleDecodingStep& step);

// Runs the trials of the file stats.retrieval; returns none without a file. A line of the file is a
// JSON object {"text", "needle" or "needle_start" and "needle_end", "answer"}: the needle as text
// or as tokens [start, end) of the text, the answer as text or as a list of token ids.
std::vector<RetrievalTrial> run_retrieval_trials(const StatsRunPlan& plan, Backend& backend);

// Returns the number of trials in the file, 0 if there is no file. Malformed lines are bad input.
std::int64_t count_retrieval_trials(const StatsRunPlan& plan);

}  // namespace qkscope
