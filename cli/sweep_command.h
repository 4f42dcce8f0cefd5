// Runs a sweep and prints its results, for `sweep` and `demo`.
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

// Runs the sweep and prints the overview. Throws at the end if runs failed. After a stop signal,
// ends the program by that signal.
void run_sweep_command(const SweepCommand& command);

// Prints one line per run: for all heads, for RoPE layers and for NoPE layers.
void print_overview(const std::vector<OverviewRow>& rows);

}  // namespace qkscope::cli
