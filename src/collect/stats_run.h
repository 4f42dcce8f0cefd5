// A run of statistics from the first document to the finished files, and joining what was run in
// parts.
#pragma once

#include <string>
#include <vector>

#include "collect/stats_plan.h"

namespace qkscope {

StatsResult run_stats(const StatsRunPlan& plan, const StatsOptions& options);

// merge_stats_shards() and merge_stats_folders() of qkscope/statistics.h.
StatsResult merge_shards(const std::string& folder);
StatsResult merge_folders(const std::vector<std::string>& folders, const std::string& out);

}  // namespace qkscope
