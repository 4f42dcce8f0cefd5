// The section `checkpoints` of a sweep's file: runs over the branches of a repository, given by the
// rule that their names follow or by what the Hub lists.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/yaml/yaml_config.h"
#include "qkscope/experimental/study.h"

namespace qkscope {

struct CheckpointRule {
  std::string repository;          // "org/name"
  std::vector<std::string> names;  // of its branches, by the rule; none: what the Hub lists
  BranchChoice choice;
  std::string prefix;                        // of labels
  std::string family;                        // of models, for figures; "": from the model's name
  std::string config;                        // a capture configuration in place of the base; ""
  YAML::Node overrides;                      // of every run; a map or null
  std::map<std::string, YAML::Node> phases;  // more overrides, for runs of one phase
};

// One item of the list. `every` and `log` above 0 stand above what it says.
CheckpointRule read_checkpoint_rule(YamlSection& section, std::int64_t every, std::int64_t log);

// The branches of a repository, as the sweep of this name sees them.
using BranchLister = std::function<std::vector<std::string>(const std::string& sweep,
                                                            const std::string& repository)>;

// The chosen ones of the repository's branches, labels with their prefix. No branch, or overrides
// of a phase that none of the repository's branches has, are bad input that names `where`.
std::vector<CheckpointBranch> branches_of(const CheckpointRule& rule,
                                          const std::vector<std::string>& names,
                                          const std::string& where);

}  // namespace qkscope
