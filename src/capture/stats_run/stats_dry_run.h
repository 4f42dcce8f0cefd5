// Predicts the cost of a run of statistics (StatsDryRun in qkscope/statistics.h) without running the
// model.
#pragma once

#include "base/io/json.h"
#include "capture/stats_run/stats_plan.h"

namespace qkscope {

StatsDryRun dry_run(const StatsRunPlan& plan, const Shard& shard);

Json to_json(const StatsRunPlan& plan, const StatsDryRun& dry);

}  // namespace qkscope
