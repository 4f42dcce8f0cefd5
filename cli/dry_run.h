// Warnings about a configuration and an estimate of the run time, which a dry run prints after its
// plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_options.h"
#include "qkscope/capture.h"

namespace qkscope::cli {

// Properties of a planned run that its warnings and its time estimate depend on.
struct PlannedWork {
  const CaptureConfig& config;
  const ModelConfig& model;
  Device device;
  std::size_t workers = 1;
  DType dtype = DType::f32;
  std::int64_t longest = 0;  // tokens of the longest text
  double flop = 0;           // of the whole run
};

// Time of a run, extrapolated from one short forward pass.
struct TimeEstimate {
  std::optional<double> seconds;
  double flop_per_second = 0;
  std::int64_t tokens = 0;  // of the measured pass
  std::string unknown;      // reason why there is no estimate
};

// Estimates the time of a run by timing one short forward pass on the same device. Downloads
// nothing: without local weights there is no estimate.
TimeEstimate estimate_time(const PlannedWork& work, const ComputeOptions& compute);

// Returns a warning if texts may be longer than the context of the model.
std::vector<std::string> length_warnings(const PlannedWork& work);

// Returns warnings about the position sampler, and about too few rows for the analyses. `rows` is
// the mean number of rows per head file and `tokens` the number of tokens, both over all shards.
std::vector<std::string> row_warnings(const PlannedWork& work, double rows, double tokens);

// Prints the estimated run time on one line, then logs the warnings.
void print_advice(const TimeEstimate& time, const std::vector<std::string>& warnings);

// Adds "warnings" and "seconds" to the JSON object of a plan.
std::string with_advice(const std::string& plan_json, const TimeEstimate& time,
                        const std::vector<std::string>& warnings);

}  // namespace qkscope::cli
