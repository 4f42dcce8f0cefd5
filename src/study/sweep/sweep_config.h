// A sweep file: the same capture and analysis over a list of checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/run/capture_plan.h"
#include "qkscope/analysis.h"
#include "qkscope/capture.h"
#include "qkscope/experimental/study.h"
#include "qkscope/statistics.h"
#include "study/sweep/checkpoint_branches.h"

namespace qkscope {

// Dataset repository and branch that the capture of a run is published to.
struct PublishTarget {
  std::string repo;
  std::string branch;  // in the section `publish`: a pattern with {label}, {phase} and {name}
  bool private_repo = false;
};

struct SweepRun {
  std::string label;        // also the folder name of the run
  std::string phase;        // training phase; may be empty
  std::string family = {};  // model family for figures; "": derived from the model's name
  std::int64_t order = 0;
  std::optional<PublishTarget> publish;
  CaptureConfig capture;                         // SweepFolder sets output.data_root
  bool captures = true;                          // false: the run only has statistics
  std::optional<StatisticsSettings> statistics;  // statistics over every token of the same texts
  // An existing capture (a folder or REPO@BRANCH) and metadata missing from it; "" for a run that
  // makes its own capture.
  std::string data;
  std::string model;
  std::optional<HeadCounts> head_counts;
  std::vector<int> nope_layers;
};

// Returns name and revision of the run's checkpoint.
std::pair<std::string, std::string> checkpoint_name_and_revision(const SweepRun& run);

// Returns the configuration of the run's statistics, with `data_root` as output folder.
StatsConfig stats_config(const SweepRun& run, const std::string& data_root);

struct SweepConfig {
  std::string name;
  std::vector<SweepRun> runs;  // sorted by order
  AnalyzeOptions analysis;     // common options; data_root and label are set per run
  ComputeOptions compute;      // dtype is also stored in the configuration of each run
  SlurmOptions slurm = {};
  // Branches by repository, for repositories whose checkpoints the Hub lists.
  std::map<std::string, std::vector<std::string>> listed;
};

// Reads the section `analysis`, whose keys are the options of `qkscope analyze`. Options that
// describe a capture are keys of its run instead, and options of statistics do not apply.
AnalyzeOptions read_analysis_options(YamlSection section);

// Reads the section `compute`, whose keys are options of `qkscope capture`. Command-line options
// take precedence.
ComputeOptions read_compute_options(YamlSection section, const ComputeOptions& command_line);

// Asks the Hub for the branches of a repository.
std::vector<std::string> list_hub_branches(const std::string& sweep, const std::string& repository);

// Reads a sweep file. Throws a bad-input error with file, line and expected value.
SweepConfig read_sweep_config(const SweepSource& source,
                              const BranchLister& list = list_hub_branches);

}  // namespace qkscope
