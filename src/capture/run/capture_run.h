// Runs a capture from the first document to the published files, and resumes it after a crash.
#pragma once

#include <string>

#include "capture/run/capture_plan.h"
#include "capture/run/pass_companion.h"

namespace qkscope {

// Captures into the data root of the plan. A companion observes the same forward passes.
CaptureResult run_capture(const RunPlan& plan, const CaptureOptions& options,
                          PassCompanion* companion = nullptr);

// Whether the plan's data root holds an unfinished capture that this run would resume.
bool continues_capture(const RunPlan& plan);

// Implements merge_capture() of qkscope/capture.h.
CaptureResult merge_parts(const std::string& data_root, bool quiet);

}  // namespace qkscope
