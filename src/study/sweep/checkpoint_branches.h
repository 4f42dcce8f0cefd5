// Branches of a repository as checkpoints of a training run, and the section `checkpoints` of a
// sweep file that selects them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/yaml/yaml_config.h"
#include "qkscope/experimental/study.h"

namespace qkscope {

// Parses phase and step from a branch name: "stage1-step-40000", "lc-4k-to-32k-step-4000",
// "step1000", "stage2-step1000-tokens3B", "checkpoint-500", "iter_20". The label stays empty.
CheckpointBranch parse_branch(const std::string& name);

// Natural sort order: digits inside names compare as numbers.
bool natural_less(const std::string& a, const std::string& b);

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

// Reads one item of the section `checkpoints`. `every` and `log` above 0 replace the values of the
// file.
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

}  // namespace qkscope
