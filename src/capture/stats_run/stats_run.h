// Runs statistics from the first document to the published files, and merges shards and folders.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/stats_run/stats_plan.h"

namespace qkscope {

StatsResult run_stats(const StatsRunPlan& plan, const StatsOptions& options);

// Statistics and a capture of the same texts and model from the same forward passes. Each output is
// byte-identical to a separate run, and each resumes from its own journal.
struct JointResult {
  StatsResult statistics;
  std::optional<CaptureResult> capture;  // nullopt if the statistics needed no forward pass
};
struct JointCapture {
  const RunPlan& plan;
  CaptureOptions options;
};
JointResult run_stats(const StatsRunPlan& plan, const StatsOptions& options,
                      const JointCapture& capture);

// Implement merge_stats_shards() and merge_stats_folders() of qkscope/statistics.h.
StatsResult merge_shards(const std::string& folder);
StatsResult merge_folders(const std::vector<std::string>& folders, const std::string& out);

}  // namespace qkscope
