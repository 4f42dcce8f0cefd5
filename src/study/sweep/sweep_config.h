// A sweep: the same capture and analysis over a list of checkpoints, read from one YAML file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "capture/run/capture_config.h"
#include "qkscope/analysis.h"
#include "qkscope/capture.h"
#include "qkscope/experimental/study.h"
#include "qkscope/statistics.h"
#include "study/sweep/sweep_checkpoints.h"

namespace qkscope {

// Where the capture of a run is published.
struct PublishTarget {
  std::string repo;
  std::string branch;
  bool private_repo = false;
};

struct SweepRun {
  std::string label;        // also the name of its folders
  std::string phase;        // of the training, "" where there is none
  std::string family = {};  // of models, for figures; "": from the model's name
  std::int64_t order = 0;
  std::optional<PublishTarget> publish;
  CaptureConfig capture;                         // output.data_root is chosen by the sweep's folder
  bool captures = true;                          // false: statistics stand in for a capture
  std::optional<StatisticsSettings> statistics;  // over every token of the same texts
  // A capture that is there already, a folder or REPO@BRANCH, and what it does not say of itself:
  // nothing is captured. "" for a run that captures.
  std::string data;
  std::string model;
  std::optional<HeadCounts> head_counts;
  std::vector<int> nope_layers;
};

// Of a run with statistics, into this folder.
StatsConfig stats_config(const SweepRun& run, const std::string& data_root);

struct SweepConfig {
  std::string name;
  std::vector<SweepRun> runs;  // by order
  AnalyzeOptions analysis;     // the same for all; data_root and label are set per run
  ComputeOptions compute;      // how the models run; the type is in each run's configuration too
  SlurmOptions slurm = {};     // what its tasks ask for on a cluster
  // The branches of repositories whose checkpoints were chosen from a list, by repository.
  std::map<std::string, std::vector<std::string>> listed;
};

// What the Hub lists now.
std::vector<std::string> ask_for_branches(const std::string& sweep, const std::string& repository);

// Bad input names the file, the line and what was expected.
SweepConfig read_sweep(const SweepSource& source, const BranchLister& list = ask_for_branches);

}  // namespace qkscope
