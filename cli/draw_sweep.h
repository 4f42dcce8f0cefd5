// Where a sweep and the figures meet.
#pragma once

#include "study/sweep_folder.h"

namespace qkscope::cli {

// Draws the figures and the report of a sweep below its folder and says where they are. A build
// without figures says that instead.
void draw_sweep(const SweepFolder& folder, bool quiet);

}  // namespace qkscope::cli
