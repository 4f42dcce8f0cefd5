// Where a sweep and the figures meet.
#pragma once

#include <string>

namespace qkscope::cli {

// Draws the figures and the report of a sweep below its folder (RESULTS/NAME) and says where they
// are. A build without figures says that instead.
void draw_sweep(const std::string& folder, bool quiet);

}  // namespace qkscope::cli
