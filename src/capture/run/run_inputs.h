// Fingerprints of the input files of a run. They are part of the run's identity, so that a run is
// not resumed with other texts, weights or tokenizers.
#pragma once

#include "capture/format/manifest.h"
#include "capture/run/capture_plan.h"

namespace qkscope {

// Returns {"config": {file: fingerprint}, "tokenizer": ..., "weights": ..., "dataset": ...}. A kind
// without existing files is left out.
Json fingerprint_inputs(const RunPlan& plan);

// Returns the entries "config" and "tokenizer" only.
Json fingerprint_small_inputs(const RunPlan& plan);

// Returns the plan's manifest with the fingerprints added to its identity.
Manifest manifest_with_inputs(const RunPlan& plan);

}  // namespace qkscope
