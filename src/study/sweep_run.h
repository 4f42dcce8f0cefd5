// Runs a sweep: captures and analyses what is not there yet, one failure does not stop the others.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/error.h"
#include "qkscope/captures.h"
#include "study/sweep_config.h"
#include "study/sweep_folder.h"

namespace qkscope {

struct SweepOptions {
  std::vector<std::string> only;  // labels; none: every run
  Shard shard;                    // every n-th run
  int jobs = 1;                   // runs at a time; they share the threads
  bool overwrite = false;         // replaces captures that were made with another configuration
  bool evict = false;             // weights leave the Hub's cache after their last run
  bool quiet = false;             // no progress
  bool compact = false;           // progress counts runs, not examples and heads
  const std::atomic<bool>* stop = nullptr;
};

struct RunReport {
  enum class Outcome {
    done,
    already_done,
    failed,
    elsewhere,    // another process is at it
    interrupted,  // or not begun before the stop
  };
  std::string label;
  Outcome outcome = Outcome::interrupted;
  std::string error;
  ErrorKind error_kind = ErrorKind::failure;
};

// The chosen runs. A label that is not there is bad input.
std::vector<const SweepRun*> chosen_runs(const SweepConfig& config, const SweepOptions& options);

// In the order of the runs. runs.json and the tables of all finished runs are written at the end.
std::vector<RunReport> run_sweep(const SweepConfig& config, const SweepFolder& folder,
                                 const SweepOptions& options);

}  // namespace qkscope
