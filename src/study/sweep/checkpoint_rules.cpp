#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "input/checkpoint/hub_cache.h"
#include "study/sweep/checkpoint_branches.h"

namespace qkscope {
namespace {

constexpr std::string_view kStep = "{step}";
constexpr std::size_t kMostBranches = 100'000;

using Names = std::vector<std::string>;

// Expands a branch-name pattern to one name per step.
class PatternReader {
 public:
  PatternReader(const YamlSection& section, std::string pattern, Names& names)
      : section_(section), pattern_(std::move(pattern)), names_(names) {}

  // `steps` is a number, a range {from, to, every}, or a list of numbers and ranges.
  void read(const YAML::Node& steps) {
    const auto at = pattern_.find(kStep);
    if (at == std::string::npos) {
      if (!steps.IsNull()) complain("nothing: there is no {step} in the name");
      return add(pattern_);
    }
    before_ = pattern_.substr(0, at);
    after_ = pattern_.substr(at + kStep.size());
    if (!steps.IsSequence()) return read_item(steps);
    if (steps.size() == 0) complain("at least one step");
    for (const auto& item : steps) read_item(item);
  }

 private:
  void read_item(const YAML::Node& item) {
    if (item.IsMap()) return read_range(item);
    std::int64_t step = 0;
    if (!item.IsScalar() || !YAML::convert<std::int64_t>::decode(item, step) || step < 0)
      complain("steps: a number, {from: 1000, to: 9000, every: 1000}, or a list of those");
    add_step(step);
  }

  void read_range(const YAML::Node& range) {
    const auto number = [&](const char* key) {
      std::int64_t value = -1;
      if (!range[key] || !YAML::convert<std::int64_t>::decode(range[key], value) || value < 0)
        complain("a range {from, to, every} of numbers from 0 on");
      return value;
    };
    const auto from = number("from");
    const auto to = number("to");
    const auto every = number("every");
    if (range.size() != 3 || every < 1 || to < from || (to - from) % every != 0)
      complain("a range {from, to, every} that reaches `to` in steps of `every`");
    if ((to - from) / every >= static_cast<std::int64_t>(kMostBranches))
      complain(fmt::format("a range of at most {} steps", kMostBranches));
    for (auto step = from; step <= to; step += every) add_step(step);
  }

  void add_step(std::int64_t step) { add(fmt::format("{}{}{}", before_, step, after_)); }

  void add(std::string name) {
    if (!is_revision(name)) complain(in_quotes(name) + " to be the name of a branch");
    if (names_.size() >= kMostBranches) complain("fewer branches");
    names_.push_back(std::move(name));
  }

  [[noreturn]] void complain(const std::string& what) const {
    section_.expected("branches", fmt::format("of '{}' {}", printable(pattern_), what));
  }

  const YamlSection& section_;
  std::string pattern_;
  Names& names_;
  std::string before_;
  std::string after_;
};

Names read_names(YamlSection& section) {
  Names names;
  const auto branches = section.node("branches");
  if (branches.IsNull()) return names;
  if (!branches.IsMap() || branches.size() == 0)
    section.expected("branches", "a map of names with {step} and their steps");
  for (const auto& entry : branches)
    PatternReader(section, entry.first.as<std::string>(""), names).read(entry.second);
  auto sorted = names;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    section.expected("branches", fmt::format("each once; {} is there twice", *twice));
  return names;
}

Names read_globs(YamlSection& section) {
  Names globs;
  const auto match = section.node("match");
  if (match.IsScalar()) globs.push_back(match.Scalar());
  if (match.IsSequence())
    for (const auto& item : match) globs.push_back(item.as<std::string>(""));
  if (!match.IsNull() &&
      (globs.empty() || std::find(globs.begin(), globs.end(), "") != globs.end()))
    section.expected("match", "a pattern like 'stage1-*', or a list of them");
  return globs;
}

std::map<std::string, YAML::Node> read_phases(YamlSection& section) {
  std::map<std::string, YAML::Node> phases;
  const auto node = section.node("phases");
  if (node.IsNull()) return phases;
  if (!node.IsMap()) section.expected("phases", "a map: overrides for each phase");
  for (const auto& entry : node) {
    if (!entry.second.IsMap()) section.expected("phases", "a map: overrides for each phase");
    phases[entry.first.as<std::string>("")] = entry.second;
  }
  return phases;
}

void check_phases(const CheckpointRule& rule, const Names& names, const std::string& where) {
  std::set<std::string> there;
  for (const auto& branch : checkpoint_branches(names, {.match = {"*"}}))
    there.insert(branch.phase);
  for (const auto& [phase, overrides] : rule.phases)
    if (!there.contains(phase))
      bad_input("{}: phases: found {}, expected a phase of the branches of {}: {}", where,
                in_quotes(phase), rule.repository, fmt::join(there, ", "));
}

}  // namespace

CheckpointRule read_checkpoint_rule(YamlSection& section, std::int64_t every, std::int64_t log) {
  CheckpointRule rule;
  rule.repository = section.required_text("repository");
  if (!is_repository_id(rule.repository))
    section.expected("repository", "the name of a repository, org/name");
  rule.names = read_names(section);
  rule.choice.match = read_globs(section);
  const auto own_every = section.integer("every", 1);
  const auto own_log = section.integer("log", 1);
  if (own_every && own_log) section.expected("log", "nothing beside `every`");
  rule.choice.every = own_every.value_or(1);
  rule.choice.log = own_log.value_or(0);
  if (every > 0 || log > 0) {
    rule.choice.every = std::max<std::int64_t>(every, 1);
    rule.choice.log = log;
  }
  rule.prefix = section.text("prefix").value_or("");
  rule.family = section.text("family").value_or("");
  rule.config = section.text("config").value_or("");
  rule.overrides.reset(section.node("overrides"));
  if (!rule.overrides.IsNull() && !rule.overrides.IsMap()) section.expected("overrides", "a map");
  rule.phases = read_phases(section);
  section.finish();
  return rule;
}

std::vector<CheckpointBranch> branches_of(const CheckpointRule& rule, const Names& names,
                                          const std::string& where) {
  check_phases(rule, names, where);
  auto choice = rule.choice;
  // Branches that the file names explicitly are selected even without a step.
  if (!rule.names.empty() && choice.match.empty()) choice.match = {"*"};
  auto branches = checkpoint_branches(names, choice);
  if (branches.empty())
    bad_input(
        "{}: none of the {} branches of {} {}", where, names.size(), rule.repository,
        rule.choice.match.empty() ? "tells a step in its name; match: '*' takes all" : "matches");
  for (auto& branch : branches) branch.label = rule.prefix + branch.label;
  return branches;
}

}  // namespace qkscope
