// What a run of statistics would take (StatsDryRun in qkscope/statistics.h), without running the
// model.
#pragma once

#include "collect/stats_plan.h"
#include "io/json.h"

namespace qkscope {

StatsDryRun dry_run(const StatsRunPlan& plan, const Shard& shard);

Json to_json(const StatsRunPlan& plan, const StatsDryRun& dry);

}  // namespace qkscope
