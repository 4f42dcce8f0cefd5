// What a run would give (DryRun in qkscope/capture.h), without running the model.
#pragma once

#include "capture/capture_plan.h"
#include "io/json.h"

namespace qkscope {

DryRun dry_run(const RunPlan& plan, const Shard& shard);

// One object: heads by layer, eligible and excluded layers, and the numbers of the dry run.
Json to_json(const RunPlan& plan, const DryRun& dry);

}  // namespace qkscope
