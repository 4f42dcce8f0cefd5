// What a run reads, as it is on the disk now: a fingerprint of every file. It belongs to the
// identity of a run, so that a run is not continued over other texts, weights, settings or tokens.
#pragma once

#include "capture/format/manifest.h"
#include "capture/run/capture_plan.h"

namespace qkscope {

// {"config": {file: fingerprint}, "tokenizer": ..., "weights": ..., "dataset": ...}. What is not
// there any more is left out with all of its kind.
Json fingerprint_inputs(const RunPlan& plan);

// The same of config.json and the tokenizer alone.
Json fingerprint_small_inputs(const RunPlan& plan);

// The plan's manifest with the fingerprints in its identity.
Manifest manifest_with_inputs(const RunPlan& plan);

}  // namespace qkscope
