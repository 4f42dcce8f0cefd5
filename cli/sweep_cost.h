// Cost estimates of a sweep, for the plans that `sweep` and `submit` print.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "qkscope/experimental/study.h"

namespace qkscope::cli {

// Speeds from which times are estimated.
struct CostOptions {
  std::string speed = "400T";  // FLOP/s
  std::string bandwidth = "100MB";

  void add_to(CLI::App& command);
  // Throws for speeds that cannot be parsed, before any work is done.
  void check() const;
  double flop_per_second() const;
  double bytes_per_second() const;
};

// Prints one line per run, then the totals. Throws at the end if some runs cannot be planned.
void print_sweep_plan(const std::vector<PlannedRun>& runs, const CostOptions& options, bool evicts,
                      const std::string& folder);

// Returns the FLOP that a run still needs.
double work_of(const PlannedRun& run);

}  // namespace qkscope::cli
