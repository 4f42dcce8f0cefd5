// What a sweep would do and what it would take, from the sizes of files and the lengths of texts
// alone.
#pragma once

#include <vector>

#include "qkscope/experimental/study.h"
#include "study/sweep/sweep_config.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {

// Of the chosen runs, in their order. Small files are downloaded, and no weights.
std::vector<PlannedRun> plan_sweep(const SweepConfig& config, const SweepFolder& folder,
                                   const SweepOptions& options);

}  // namespace qkscope
