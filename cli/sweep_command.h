// What `sweep` and `demo` share: running a sweep, telling how it went, the table at its end.
#pragma once

#include <string>
#include <vector>

#include "qkscope/experimental/study.h"

namespace qkscope::cli {

struct SweepCommand {
  Sweep sweep;
  SweepOptions options;
  bool figures = true;
};

// Runs it and prints the overview. Runs that failed are thrown about at the end, when all else is
// done; a run that was stopped ends the program by the signal.
void run_sweep_command(const SweepCommand& command);

// One line per run: all heads, then RoPE and NoPE layers apart.
void print_overview(const std::vector<OverviewRow>& rows);

}  // namespace qkscope::cli
