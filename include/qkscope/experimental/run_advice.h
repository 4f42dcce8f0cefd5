// Estimated time of a run, and warnings about its configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkscope/capture.h"
#include "qkscope/statistics.h"
#include "qkscope/version.h"

namespace qkscope {

struct RunAdvice {
  std::optional<double> seconds;  // of the run, extrapolated from one short forward pass
  double flop_per_second = 0;     // of the measured pass
  std::int64_t tokens = 0;        // of the measured pass
  std::string unknown;            // reason why there is no estimate
  std::vector<std::string> warnings;
};

// Estimates the time of a run by timing one short forward pass on the same device. Downloads
// nothing: without local weights there is no estimate. Warns if texts may be longer than the
// context of the model, and for captures if rows are too few for the analyses or the position
// sampler is misconfigured.
QKSCOPE_API RunAdvice make_run_advice(const CapturePlan& plan, const DryRun& dry,
                                      const Shard& shard, const ComputeOptions& compute = {});
QKSCOPE_API RunAdvice make_run_advice(const StatsPlan& plan, const StatsDryRun& dry,
                                      const ComputeOptions& compute = {});

// Adds `warnings` and `seconds` (null: no estimate) of `advice` to the JSON object of plan_json().
QKSCOPE_API std::string add_advice_to_plan_json(const std::string& plan_json,
                                                const RunAdvice& advice);

}  // namespace qkscope
