// Predicts the result of a run (DryRun in qkscope/capture.h) without running the model.
#pragma once

#include "base/io/json.h"
#include "capture/run/capture_plan.h"

namespace qkscope {

DryRun dry_run(const RunPlan& plan, const Shard& shard);

// Number of (query, key) pairs in causal attention over `length` tokens; window 0 means full
// attention.
double attended_pairs(std::int64_t length, std::int64_t window);

// Floating-point operations of a forward pass over `length` tokens, without logits.
double forward_flop(const ModelConfig& model, std::int64_t length);

// Returns heads by layer, eligible and excluded layers, and the fields of the dry run.
Json to_json(const RunPlan& plan, const DryRun& dry);

}  // namespace qkscope
