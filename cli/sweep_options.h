// Options of commands that read a sweep file (sweep, submit), and printing of the sweep plan.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/run_options.h"
#include "qkscope/experimental/study.h"

namespace qkscope::cli {

struct SweepFileArguments {
  SweepSource source;
  ComputeArguments compute;  // for every run
  std::string results = "results";

  void add_to(CLI::App& command);
  Sweep read();
  // Returns the sweep file and the options as command-line arguments for another process in the
  // same working directory.
  std::vector<std::string> arguments() const;
};

// Assumed compute and download speeds, for estimates of run times.
struct CostOptions {
  std::string speed = "400T";  // FLOP/s
  std::string bandwidth = "100MB";

  void add_to(CLI::App& command);
  // Throws a bad-input error if a speed cannot be parsed. Call before starting any work.
  void check() const;
  double flop_per_second() const;
  double bytes_per_second() const;
};

// Prints one line per run, then the totals. Throws at the end if some runs cannot be planned.
void print_sweep_plan(const std::vector<PlannedRun>& runs, const CostOptions& options, bool evicts,
                      const std::string& folder);

}  // namespace qkscope::cli
