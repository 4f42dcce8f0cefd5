// Readers of the sections `analysis`, `compute` and `checkpoints` of a sweep file.
#include <algorithm>

#include <fmt/ranges.h>

#include "base/core/convert.h"
#include "base/core/text.h"
#include "input/checkpoint/hub_cache.h"
#include "qkscope/experimental/options.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

// Query heads are written as pairs [layer, head]: [[3, 5], [3, 6]].
std::optional<OptionValue> decode_head_list(const YAML::Node& list) {
  if (!list.IsSequence()) return {};
  std::vector<HeadId> heads;
  for (const auto& item : list) {
    HeadId id{0, 0, HeadKind::query};
    if (!item.IsSequence() || item.size() != 2 || !YAML::convert<int>::decode(item[0], id.layer) ||
        !YAML::convert<int>::decode(item[1], id.head) || id.layer < 0 || id.head < 0)
      return {};
    heads.push_back(id);
  }
  return heads;
}

std::optional<OptionValue> decode_integer_list(const YAML::Node& list) {
  if (!list.IsSequence()) return {};
  std::vector<std::int64_t> values(list.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!decode_integer(list[i], values[i])) return {};
  return values;
}

template <typename T>
std::optional<OptionValue> decode_yaml_as(const YAML::Node& node) {
  T value{};
  if (!YAML::convert<T>::decode(node, value)) return {};
  return OptionValue(std::move(value));
}

// Decodes a YAML node as a value of the option's type; nullopt if the node has another type.
std::optional<OptionValue> decode_option(const AnalysisOption& option, const YAML::Node& node) {
  const bool is_text = option.kind == OptionKind::choice || option.kind == OptionKind::text;
  if (!is_text && has_octal_number(node)) return {};
  switch (option.kind) {
    case OptionKind::flag:
      return decode_yaml_as<bool>(node);
    case OptionKind::count:
      if (node.IsScalar() && std::ranges::count(option.words, node.Scalar()) > 0)
        return node.Scalar();
      return node.IsScalar() && !node.Scalar().starts_with('-')
                 ? decode_yaml_as<std::uint64_t>(node)
                 : std::nullopt;
    case OptionKind::number:
      return decode_yaml_as<double>(node);
    case OptionKind::choice:
    case OptionKind::text:
      return decode_yaml_as<std::string>(node);
    case OptionKind::counts:
    case OptionKind::layers:
      return decode_integer_list(node);
    case OptionKind::heads:
      return decode_head_list(node);
  }
  return {};
}

constexpr std::string_view kStep = "{step}";
constexpr std::size_t kMostBranches = 100'000;

using Names = std::vector<std::string>;

// Appends the branch names of a pattern, one per step. `steps` is a number, a range {from, to,
// every}, or a list of numbers and ranges; null for a pattern without {step}.
void expand_branch_pattern(const YamlSection& section, const std::string& pattern,
                           const YAML::Node& steps, Names& names) {
  const auto complain = [&](const std::string& what) {
    section.reject_value("branches", fmt::format("of '{}' {}", printable(pattern), what));
  };
  const auto add = [&](const std::string& name) {
    if (!is_valid_revision(name)) complain(quote_text(name) + " to be the name of a branch");
    if (names.size() >= kMostBranches) complain("fewer branches");
    names.push_back(name);
  };
  const auto at = pattern.find(kStep);
  if (at == std::string::npos) {
    if (!steps.IsNull()) complain("nothing: there is no {step} in the name");
    return add(pattern);
  }
  const auto number = [&](const YAML::Node& node, const char* expected) {
    std::int64_t value = -1;
    const bool decoded = node && decode_integer(node, value);
    if (!decoded || value < 0) complain(expected);
    return value;
  };
  const auto add_step = [&](std::int64_t step) {
    add(fmt::format("{}{}{}", pattern.substr(0, at), step, pattern.substr(at + kStep.size())));
  };
  const auto read_item = [&](const YAML::Node& item) {
    if (!item.IsMap())
      return add_step(
          number(item, "steps: a number, {from: 1000, to: 9000, every: 1000}, or a list of those"));
    constexpr auto kRange = "a range {from, to, every} of numbers from 0 on";
    const auto from = number(item["from"], kRange);
    const auto to = number(item["to"], kRange);
    const auto every = number(item["every"], kRange);
    if (item.size() != 3 || every < 1 || to < from || (to - from) % every != 0)
      complain("a range {from, to, every} that reaches `to` in steps of `every`");
    if ((to - from) / every >= static_cast<std::int64_t>(kMostBranches))
      complain(fmt::format("a range of at most {} steps", kMostBranches));
    for (auto step = from; step <= to; step += every) add_step(step);
  };
  if (!steps.IsSequence()) return read_item(steps);
  if (steps.size() == 0) complain("at least one step");
  for (const auto& item : steps) read_item(item);
}

Names read_branch_names(YamlSection& section) {
  Names names;
  const auto branches = section.node("branches");
  if (branches.IsNull()) return names;
  if (!branches.IsMap() || branches.size() == 0)
    section.reject_value("branches", "a map of names with {step} and their steps");
  for (const auto& entry : branches)
    expand_branch_pattern(section, entry.first.as<std::string>(""), entry.second, names);
  auto sorted = names;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    section.reject_value("branches", fmt::format("each once; {} is there twice", *twice));
  return names;
}

Names read_branch_globs(YamlSection& section) {
  Names globs;
  const auto match = section.node("match");
  if (match.IsScalar()) globs.push_back(match.Scalar());
  if (match.IsSequence())
    for (const auto& item : match) globs.push_back(item.as<std::string>(""));
  if (!match.IsNull() && (globs.empty() || std::ranges::count(globs, "") > 0))
    section.reject_value("match", "a pattern like 'stage1-*', or a list of them");
  return globs;
}

}  // namespace

AnalyzeOptions read_analysis_options(YamlSection section) {
  AnalyzeOptions options;
  options.pca = section.boolean("pca").value_or(true);
  options.rotation = section.boolean("rotation").value_or(true);
  options.plasticity = section.boolean("plasticity").value_or(true);
  options.geometry = section.boolean("geometry").value_or(true);
  if (!options.pca && !options.rotation && !options.plasticity && !options.geometry)
    section.reject_value("pca",
                         "true, or rotation, plasticity or geometry true: one of them is run");
  for (const auto& option : analysis_options()) {
    if (option.group == OptionGroup::capture || option.group == OptionGroup::statistics) continue;
    const std::string key(option.name);
    const auto node = section.node(key);
    if (!node || node.IsNull()) continue;
    const auto value = decode_option(option, node);
    if (!value || !option.allows(*value)) section.reject_value(key, option.expected());
    option.store(options, *value);
  }
  section.reject_unknown_keys();
  return options;
}

ComputeOptions read_compute_options(YamlSection section, const ComputeOptions& command_line) {
  ComputeOptions compute;
  compute.device = section.text("device").value_or("");
  if (const auto devices = section.text("devices")) {
    if (!compute.device.empty()) section.reject_value("devices", "nothing beside `device`");
    compute.devices = split(*devices, ',');
  }
  if (const auto dtype = section.text("dtype")) {
    compute.dtype = find_compute_dtype(*dtype);
    if (!compute.dtype) section.reject_value("dtype", "float32, float16 or bfloat16");
  }
  if (const auto memory = section.text("device_memory")) try {
      compute.device_memory = parse_bytes(*memory, "device_memory");
    } catch (const Error&) {
      section.reject_value("device_memory", "a size like 8GiB");
    }
  compute.batch_tokens = section.integer("batch_tokens", 1).value_or(compute.batch_tokens);
  compute.deterministic = section.boolean("deterministic").value_or(false);
  section.reject_unknown_keys();
  if (!command_line.device.empty() || !command_line.devices.empty()) {
    compute.device = command_line.device;
    compute.devices = command_line.devices;
  }
  if (command_line.dtype) compute.dtype = command_line.dtype;
  if (command_line.device_memory > 0) compute.device_memory = command_line.device_memory;
  if (command_line.batch_tokens > 0) compute.batch_tokens = command_line.batch_tokens;
  compute.deterministic = compute.deterministic || command_line.deterministic;
  return compute;
}

CheckpointFilter read_checkpoint_filter(YamlSection& section, std::int64_t every,
                                        std::int64_t log) {
  CheckpointFilter filter;
  filter.repository = section.required_text("repository");
  if (!is_repository_id(filter.repository))
    section.reject_value("repository", "the name of a repository, org/name");
  filter.names = read_branch_names(section);
  filter.choice.match = read_branch_globs(section);
  const auto own_every = section.integer("every", 1);
  const auto own_log = section.integer("log", 1);
  if (own_every && own_log) section.reject_value("log", "nothing beside `every`");
  filter.choice.every = own_every.value_or(1);
  filter.choice.log = own_log.value_or(0);
  if (every > 0 || log > 0) {
    filter.choice.every = std::max<std::int64_t>(every, 1);
    filter.choice.log = log;
  }
  filter.prefix = section.text("prefix").value_or("");
  filter.family = section.text("family").value_or("");
  filter.config = section.text("config").value_or("");
  filter.overrides.reset(section.node("overrides"));
  if (!filter.overrides.IsNull() && !filter.overrides.IsMap())
    section.reject_value("overrides", "a map");
  const auto phases = section.node("phases");
  bool maps = phases.IsNull() || phases.IsMap();
  for (const auto& entry : phases) {
    maps = maps && entry.second.IsMap();
    if (maps) filter.phases[entry.first.as<std::string>("")] = entry.second;
  }
  if (!maps) section.reject_value("phases", "a map: overrides for each phase");
  section.reject_unknown_keys();
  return filter;
}

std::vector<CheckpointBranch> select_branches(const CheckpointFilter& filter, const Names& names,
                                              const std::string& where) {
  std::set<std::string> phases;
  for (const auto& branch : checkpoint_branches(names, {.match = {"*"}}))
    phases.insert(branch.phase);
  for (const auto& [phase, overrides] : filter.phases)
    if (!phases.contains(phase))
      reject("{}: phases: found {}, expected a phase of the branches of {}: {}", where,
             quote_text(phase), filter.repository, fmt::join(phases, ", "));
  auto choice = filter.choice;
  // Branches listed in the file are selected even if their names contain no training step.
  if (!filter.names.empty() && choice.match.empty()) choice.match = {"*"};
  auto branches = checkpoint_branches(names, choice);
  if (branches.empty())
    reject(
        "{}: none of the {} branches of {} {}", where, names.size(), filter.repository,
        filter.choice.match.empty() ? "tells a step in its name; match: '*' takes all" : "matches");
  for (auto& branch : branches) branch.label = filter.prefix + branch.label;
  return branches;
}

}  // namespace qkscope
