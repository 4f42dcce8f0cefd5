// Runs a sweep: captures and analyses what is not there yet, one failure does not stop the others.
#pragma once

#include <vector>

#include "base/core/error.h"
#include "qkscope/captures.h"
#include "qkscope/experimental/study.h"
#include "study/sweep/sweep_config.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {

// The chosen runs. A label that is not there is bad input.
std::vector<const SweepRun*> chosen_runs(const SweepConfig& config, const SweepOptions& options);

// In the order of the runs. runs.json and the tables of all finished runs are written at the end.
std::vector<RunReport> run_sweep(const SweepConfig& config, const SweepFolder& folder,
                                 const SweepOptions& options);

}  // namespace qkscope
