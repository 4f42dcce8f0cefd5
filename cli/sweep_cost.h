// What a sweep takes, for the plans that `sweep` and `submit` print.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "qkscope/experimental/study.h"

namespace qkscope::cli {

// What times are reckoned with.
struct CostOptions {
  std::string speed = "400T";  // FLOP/s
  std::string bandwidth = "100MB";

  void add_to(CLI::App& command);
  double flop_per_second() const;
  double bytes_per_second() const;
};

// One line per run, then what all together take. Runs that cannot be planned are thrown about at
// the end.
void print_sweep_plan(const std::vector<PlannedRun>& runs, const CostOptions& options, bool evicts,
                      const std::string& folder);

// FLOP of a run that is still to be made.
double work_of(const PlannedRun& run);

}  // namespace qkscope::cli
