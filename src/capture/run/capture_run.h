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
// have separate journals; after a crash, each computes only the examples missing from its journal.
class SharedPassConsumer {
 public:
  virtual ~SharedPassConsumer() = default;

  virtual std::int64_t example_count() const = 0;  // number of examples stored for this shard
  virtual void begin_run(Backend& backend) = 0;    // called once, before the first pass
  // Returns the statistics that a batch's forward pass fills; add_observed_batch() must follow.
  virtual LayerStatistics& begin_batch(const ExampleBatch& batch) = 0;
  virtual void add_observed_batch(const ExampleBatch& batch) = 0;
  // Runs a batch only for the statistics, because the capture has already stored it.
  virtual void run_unshared_pass(const ExampleBatch& batch) = 0;
  // Writes the accumulated statistics to disk; `is_complete` is true after the last example.
  virtual void finish_run(bool is_complete) = 0;
};

// Runs a capture. `companion`, if given, accumulates statistics in the same forward passes.
CaptureResult run_capture(const RunPlan& plan, const CaptureOptions& options,
                          SharedPassConsumer* companion = nullptr);

// Returns the options of a CaptureShardRun, with the manifest of the run. `check_inputs`: see
// ShardRunOptions.
ShardRunOptions make_capture_shard_options(const RunPlan& plan, const CaptureOptions& options,
                                           std::function<void()> check_inputs);

// Whether the plan's data root holds an unfinished capture that this run would resume.
bool can_resume_capture(const RunPlan& plan);

}  // namespace qkscope
