// Runs a capture from the first document to the published files, and resumes it after a crash.
#pragma once

#include <cstdint>
#include <string>

#include "capture/run/batch_reader.h"
#include "capture/run/capture_plan.h"
#include "engine/forward/forward.h"

namespace qkscope {

// Shares the forward passes of a capture: statistics over every token.
// Capture and companion have separate journals, so after a kill one of them may have stored more
// examples than the other; those examples run again for the other alone.
class PassCompanion {
 public:
  virtual ~PassCompanion() = default;

  virtual std::int64_t examples() const = 0;  // stored for this shard
  virtual void start(Backend& backend) = 0;   // called once, before the first pass
  // Returns the statistics that observe the forward pass of the batch; take() follows the pass.
  virtual LayerStatistics& observe(const PreparedBatch& batch) = 0;
  virtual void take(const PreparedBatch& batch) = 0;
  // Runs a batch that the capture has already stored.
  virtual void run_alone(const PreparedBatch& batch) = 0;
  // Stores everything so far; `all` is true after the last example.
  virtual void finish(bool all) = 0;
};

// Captures into the data root of the plan. A companion observes the same forward passes.
CaptureResult run_capture(const RunPlan& plan, const CaptureOptions& options,
                          PassCompanion* companion = nullptr);

// Whether the plan's data root holds an unfinished capture that this run would resume.
bool can_resume_capture(const RunPlan& plan);

// Implements merge_capture() of qkscope/capture.h.
CaptureResult merge_parts(const std::string& data_root, bool quiet);

}  // namespace qkscope
