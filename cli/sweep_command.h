// Runs a sweep and prints its results or its progress.
#pragma once

#include "qkscope/experimental/study.h"

namespace qkscope::cli {

struct SweepCommand {
  Sweep sweep;
  SweepOptions options;
  bool figures = true;
};

// Runs the sweep and prints the overview. Throws at the end if runs failed. After a stop signal,
// terminates the program with that signal.
void run_sweep_command(const SweepCommand& command);

// Prints the state of every run, on one machine or on a cluster. With `watch_seconds` above 0,
// prints again at that interval until all runs are done.
void print_sweep_status(const Sweep& sweep, double watch_seconds, bool json);

}  // namespace qkscope::cli
