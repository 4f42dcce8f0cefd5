// What a sweep would do: nothing is written and no weights are read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkscope/capture.h"
#include "study/sweep_run.h"

namespace qkscope {

struct PlannedRun {
  std::string label;
  bool captured = false;
  bool analysed = false;
  std::optional<DryRun> capture;  // of a run that is still to capture
  std::string error;              // why it could not be planned
  ErrorKind error_kind = ErrorKind::bad_input;
};

std::vector<PlannedRun> plan_sweep(const SweepConfig& config, const SweepFolder& folder,
                                   const SweepOptions& options);

}  // namespace qkscope
