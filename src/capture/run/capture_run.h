// Runs a capture from the first document to the published files, and resumes it after a crash.
#pragma once

#include <cstdint>
#include <functional>

#include "capture/run/batch_reader.h"
#include "capture/run/capture_plan.h"
#include "capture/writer/part_run.h"
#include "engine/forward/forward.h"

namespace qkscope {

// Statistics over every token, computed in the forward passes of a capture. Capture and statistics
// have separate journals; after a crash, examples that one journal lacks run again for it alone.
class SharedPassStatistics {
 public:
  virtual ~SharedPassStatistics() = default;

  virtual std::int64_t examples() const = 0;     // number of examples stored for this shard
  virtual void begin_run(Backend& backend) = 0;  // called once, before the first pass
  // Returns the statistics that observe the pass of the batch; add_observed_batch() must follow.
  virtual LayerStatistics& statistics_for_batch(const PreparedBatch& batch) = 0;
  virtual void add_observed_batch(const PreparedBatch& batch) = 0;
  // Runs a batch only for the statistics, because the capture has already stored it.
  virtual void run_batch_alone(const PreparedBatch& batch) = 0;
  // Writes the accumulated statistics to disk; `all` is true after the last example.
  virtual void finish(bool all) = 0;
};

// Runs a capture. `companion`, if given, accumulates statistics in the same forward passes.
CaptureResult run_capture(const RunPlan& plan, const CaptureOptions& options,
                          SharedPassStatistics* companion = nullptr);

// Describes the run of a capture for CapturePart. `check_inputs`: see PartRun.
PartRun make_part_run(const RunPlan& plan, const CaptureOptions& options,
                      std::function<void()> check_inputs);

// Whether the plan's data root holds an unfinished capture that this run would resume.
bool can_resume_capture(const RunPlan& plan);

}  // namespace qkscope
