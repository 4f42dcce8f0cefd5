// Progress of a sweep on one machine or on a cluster.
#pragma once

#include "qkscope/experimental/study.h"

namespace qkscope::cli {

// Prints the state of every run. With `watch_seconds` above 0, prints again at that interval until
// all runs are done.
void print_sweep_status(const Sweep& sweep, double watch_seconds, bool json);

}  // namespace qkscope::cli
