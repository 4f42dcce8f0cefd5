// What a run would give (DryRun in qkscope/capture.h), without running the model.
#pragma once

#include "base/io/json.h"
#include "capture/run/capture_plan.h"

namespace qkscope {

DryRun dry_run(const RunPlan& plan, const Shard& shard);

// Query and key pairs of a text that a layer attends to; a window of 0 is none.
double attended_pairs(std::int64_t length, std::int64_t window);

// Multiplications and additions of a forward pass over a text of so many tokens, without logits.
double forward_flop(const ModelConfig& model, std::int64_t length);

// One object: heads by layer, eligible and excluded layers, and the numbers of the dry run.
Json to_json(const RunPlan& plan, const DryRun& dry);

}  // namespace qkscope
