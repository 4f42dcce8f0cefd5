// A run of statistics from the first document to the finished files, and joining what was run in
// parts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/stats_run/stats_plan.h"

namespace qkscope {

StatsResult run_stats(const StatsRunPlan& plan, const StatsOptions& options);

// Statistics and a capture of the same texts and model, from the same forward passes. Both give the
// bytes that they give alone, and both go on from where they were. `capture` is nothing where it
// was not run, because the statistics needed no more passes.
struct JointResult {
  StatsResult statistics;
  std::optional<CaptureResult> capture;
};
struct CaptureBeside {
  const RunPlan& plan;
  CaptureOptions options;
};
JointResult run_stats(const StatsRunPlan& plan, const StatsOptions& options,
                      const CaptureBeside& capture);

// merge_stats_shards() and merge_stats_folders() of qkscope/statistics.h.
StatsResult merge_shards(const std::string& folder);
StatsResult merge_folders(const std::vector<std::string>& folders, const std::string& out);

}  // namespace qkscope
