// A sweep file: the same capture and analysis over a list of checkpoints. The section `checkpoints`
// selects branches of a repository, the checkpoints of a training run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/yaml/yaml_config.h"
#include "capture/run/capture_plan.h"
#include "qkscope/analysis.h"
#include "qkscope/capture.h"
#include "qkscope/experimental/attribution.h"
#include "qkscope/experimental/study.h"
#include "qkscope/hub.h"
#include "qkscope/statistics.h"

namespace qkscope {

// Parses phase and step from a branch name: "stage1-step-40000", "lc-4k-to-32k-step-4000",
// "step1000", "stage2-step1000-tokens3B", "checkpoint-500", "iter_20". The label stays empty.
CheckpointBranch parse_branch_name(const std::string& name);

// Natural sort order: digits inside names compare as numbers.
bool less_in_natural_order(const std::string& a, const std::string& b);

// Abbreviates a step: "40K", "1.2M", "3.44M", "512".
std::string abbreviate_step(std::int64_t step);

// One item of the section `checkpoints`.
struct CheckpointRule {
  std::string repository;          // "org/name"
  std::vector<std::string> names;  // branch names given by patterns; empty: the Hub lists them
  BranchChoice choice;
  std::string prefix;                        // prefix of labels
  std::string family;                        // model family for figures; "": from the model's name
  std::string config;                        // capture configuration instead of the base; "": base
  YAML::Node overrides;                      // overrides of every run; a map or null
  std::map<std::string, YAML::Node> phases;  // additional overrides by phase
};

// Reads one item of the section `checkpoints`. If above 0, `every` (every n-th checkpoint) and
// `log` (at most n per phase) replace the values of the file.
CheckpointRule read_checkpoint_rule(YamlSection& section, std::int64_t every, std::int64_t log);

// Returns the branches of a repository for the sweep of this name.
using BranchLister = std::function<std::vector<std::string>(const std::string& sweep,
                                                            const std::string& repository)>;

// Returns the selected branches; their labels include the prefix of the rule. Throws a bad-input
// error whose message starts with `where` if no branch matches, or if overrides name a phase that
// no branch has.
std::vector<CheckpointBranch> select_branches(const CheckpointRule& rule,
                                              const std::vector<std::string>& names,
                                              const std::string& where);

struct SweepRun {
  std::string label;        // also the folder name of the run
  std::string phase;        // training phase; may be empty
  std::string family = {};  // model family for figures; "": derived from the model's name
  std::int64_t order = 0;
  std::optional<PublishOptions> publish;         // where the capture is published
  CaptureConfig capture;                         // SweepFolder sets output.data_root
  bool captures = true;                          // false: the run only has statistics
  std::optional<StatisticsSettings> statistics;  // statistics over every token of the same texts
  // Path or REPO@BRANCH of an existing capture, and metadata that it lacks. "": this run captures.
  std::string data;
  std::string model;
  std::optional<HeadCounts> head_counts;
  std::vector<int> nope_layers;
};

std::pair<std::string, std::string> checkpoint_name_and_revision(const SweepRun& run);

// Returns the configuration of the run's statistics, with `data_root` as output folder.
StatsConfig stats_config_of_run(const SweepRun& run, const std::string& data_root);

// The section `composition`: contributions of components to the queries and keys of heads, measured
// in every run on the first texts of its dataset.
struct CompositionSection {
  std::string heads;           // as in `qkscope attribute --head`
  CompositionOptions options;  // without heads and label
  std::int64_t texts = 100;
  std::int64_t max_tokens = 1024;  // longer texts are truncated
};

struct SweepConfig {
  std::string name;
  std::vector<SweepRun> runs;  // sorted by order
  AnalyzeOptions analysis;     // common options; data_root and label are set per run
  std::optional<CompositionSection> composition = {};
  ComputeOptions compute;  // dtype is also stored in the configuration of each run
  SlurmOptions slurm = {};
  // Branch names by repository, for repositories whose branches are listed by the Hub.
  std::map<std::string, std::vector<std::string>> listed;
};

// Reads the section `analysis`. Its keys are the options of `qkscope analyze`, except options that
// describe a capture (they are keys of the entries of `runs`) and options for statistics.
AnalyzeOptions read_analysis_options(YamlSection section);

CompositionSection read_composition_section(YamlSection section);

// Reads the section `compute` (options of `qkscope capture`). The command line takes precedence.
ComputeOptions read_compute_options(YamlSection section, const ComputeOptions& command_line);

std::vector<std::string> list_hub_branches(const std::string& sweep, const std::string& repository);

// Reads a sweep file. Throws a bad-input error with file, line and expected value.
SweepConfig read_sweep_config(const SweepSource& source,
                              const BranchLister& list = list_hub_branches);

}  // namespace qkscope
