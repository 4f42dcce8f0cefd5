// A capture run from the first document to the finished files, and what is left of it after a
// crash.
#pragma once

#include <string>

#include "capture/run/capture_plan.h"
#include "capture/run/pass_companion.h"

namespace qkscope {

// The companion, where there is one, sees the same forward passes.
CaptureResult run_capture(const RunPlan& plan, const CaptureOptions& options,
                          PassCompanion* companion = nullptr);

// Whether the plan's data root holds an unfinished capture that this run would go on with.
bool continues_capture(const RunPlan& plan);

// merge_capture() of qkscope/capture.h.
CaptureResult merge_parts(const std::string& data_root, bool quiet);

}  // namespace qkscope
