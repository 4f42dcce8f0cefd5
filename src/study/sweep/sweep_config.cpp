#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/core/text.h"
#include "base/io/folder.h"
#include "capture/stats_run/stats_plan.h"
#include "input/checkpoint/hub_cache.h"
#include "study/cluster/slurm.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMost = 1 << 20;  // largest number of heads and of layers

// Reads the section `publish`. Empty fields are taken from the configuration of each run; `branch`
// is a pattern with {label}, {phase} and {name}.
PublishOptions read_publish_options(YamlSection section) {
  PublishOptions publish;
  publish.repo = section.text("repo").value_or("");
  if (!publish.repo.empty() && !is_repository_id(publish.repo))
    section.reject_value("repo", "the name of a dataset repository, org/name");
  publish.branch = section.text("branch").value_or("");
  publish.private_repo = section.boolean("private").value_or(false);
  section.reject_unknown_keys();
  return publish;
}

// Fills in the empty fields of `target` (the `publish` section) from the run's configuration.
PublishOptions publish_target_of_run(PublishOptions target, const SweepRun& run,
                                     const std::string& sweep, const std::string& file) {
  const auto& output = run.capture.output;
  if (target.repo.empty()) {
    if (!output.hf_repo_id)
      reject(
          "{}: publish: run {} has no output.hf_repo_id in its configuration; expected one, or "
          "publish.repo",
          file, run.label);
    target.repo = *output.hf_repo_id;
    if (target.branch.empty()) target.branch = output.hf_branch.value_or("");
    target.private_repo = target.private_repo || output.private_repo;
  }
  auto& branch = target.branch;
  if (branch.empty()) branch = "{label}";
  const std::pair<std::string, std::string> words[] = {
      {"{label}", run.label}, {"{phase}", run.phase}, {"{name}", sweep}};
  for (const auto& [word, value] : words)
    for (auto at = branch.find(word); at != std::string::npos;
         at = branch.find(word, at + value.size()))
      branch.replace(at, word.size(), value);
  if (!is_valid_revision(branch) || branch.find_first_of("{} ") != std::string::npos)
    reject(
        "{}: publish.branch: run {} would go to {}, which is not the name of a branch; expected a "
        "pattern with {{label}}, {{phase}} or {{name}}",
        file, run.label, quote_text(branch));
  return target;
}

void set_publish_targets(SweepConfig& config, const PublishOptions& publish,
                         const std::string& file) {
  std::map<std::pair<std::string, std::string>, std::string> taken;
  for (auto& run : config.runs) {
    if (!run.data.empty() || !run.captures) continue;  // the run makes no capture
    run.publish = publish_target_of_run(publish, run, config.name, file);
    const auto [found, anew] =
        taken.try_emplace({run.publish->repo, run.publish->branch}, run.label);
    if (!anew)
      reject(
          "{}: publish: runs {} and {} would both go to the branch {} of {}; expected a "
          "branch for each, as {{label}} makes them",
          file, found->second, run.label, run.publish->branch, run.publish->repo);
  }
}

// Returns true for a safe folder name: short, no separators or shell metacharacters, not hidden.
bool is_safe_folder_name(const std::string& name) {
  constexpr std::size_t kLongestName = 100;
  constexpr auto allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' &&
         name.front() != '-' && name.find_first_not_of(allowed) == std::string::npos;
}

std::string read_folder_name(YamlSection& section, const std::string& key) {
  auto name = section.required_text(key);
  if (!is_safe_folder_name(name))
    section.reject_value(key, "a name for a folder: letters, digits, '.', '_', '+' and '-'");
  return name;
}

std::string resolve_relative_to_file(const std::string& file, const std::string& path) {
  return (fs::path(file).parent_path() / path).lexically_normal().string();
}

// Overrides each leaf of a nested map separately and keeps the other keys of the base.
void apply_overrides(YamlDocument& document, const YAML::Node& node, const std::string& path,
                     const std::string& file) {
  for (const auto& entry : node) {
    const auto name = entry.first.as<std::string>("");
    const auto key = path.empty() ? name : fmt::format("{}.{}", path, name);
    if (entry.second.IsMap() && entry.second.size() > 0)
      apply_overrides(document, entry.second, key, file);
    else
      override_yaml_value(document, key, entry.second,
                          fmt::format("{}:{}:", file, entry.first.Mark().line + 1));
  }
}

void prepend_folder_if_exists(const std::string& folder, std::string& path) {
  if (folder.empty() || path.empty() || fs::path(path).is_absolute()) return;
  const auto there = (fs::path(folder) / path).lexically_normal().string();
  if (path_exists(there)) path = there;
}

class SweepConfigReader {
 public:
  SweepConfigReader(const SweepSource& source, const BranchLister& list)
      : source_(source), list_(list), document_(load_yaml(source.file)) {}

  SweepConfig read() {
    YamlSection root(document_, document_.root, "");
    SweepConfig config;
    config.name = read_folder_name(root, "name");
    base_ = root.node("base");
    if (!base_.IsNull() && !base_.IsMap() && !base_.IsScalar())
      root.reject_value("base", "a capture configuration, or the path of one");
    data_folder_ = source_.data_folder;
    if (const auto folder = root.text("data_folder"); folder && data_folder_.empty())
      data_folder_ = resolve_relative_to_file(source_.file, *folder);
    config.analysis = read_analysis_options(root.section("analysis"));
    config.compute = read_compute_options(root.section("compute"), source_.compute);
    config.slurm = read_slurm_options(root.section("slurm"));
    if (root.has_value("composition"))
      config.composition = read_composition_config(root.section("composition"));
    captures_of_all_ = root.boolean("capture").value_or(true);
    stats_ = root.node("stats");
    if (!stats_.IsNull() && !stats_.IsMap())
      root.reject_value("stats", "a map, as in a configuration");
    statistics_of_all_ = root.boolean("statistics").value_or(!stats_.IsNull());
    if (!captures_of_all_ && !statistics_of_all_)
      root.reject_value("capture", "true, or statistics: true: a run has one of them");
    std::optional<PublishOptions> publish;
    if (root.has_value("publish")) publish = read_publish_options(root.section("publish"));
    auto runs = root.sections("runs");
    auto rules = root.sections("checkpoints");
    if (runs.empty() && rules.empty())
      root.reject_value("runs", "a list of at least one run, or `checkpoints`");
    root.reject_unknown_keys();
    if (rules.empty() && (source_.every > 0 || source_.log > 0))
      reject("--{}: {} has no `checkpoints` to choose from; --only chooses among its runs",
             source_.log > 0 ? "log" : "every", source_.file);
    for (auto& run : runs) config.runs.push_back(read_run(run, std::ssize(config.runs)));
    for (auto& filter : rules) add_checkpoint_runs(filter, config);
    if (!captures_ && !source_.overrides.empty())
      reject("--set {}: every run of {} has data, so that nothing is captured",
             source_.overrides.front(), source_.file);
    std::ranges::stable_sort(config.runs, {}, &SweepRun::order);
    if (config.compute.dtype)
      for (auto& run : config.runs) {
        // The dtype changes the captured values, so it is part of the capture configuration.
        run.capture.model.dtype = *config.compute.dtype;
        run.capture.inference.autocast_dtype.reset();
      }
    if (publish) set_publish_targets(config, *publish, source_.file);
    for (const auto& run : config.runs)
      if (config.composition && (!run.data.empty() || run.capture.engine != kNativeEngine))
        reject("{}: composition: run {} {}; composition runs the checkpoint itself", source_.file,
               run.label, run.data.empty() ? "has another engine" : "has only data");
    return config;
  }

 private:
  SweepRun read_run(YamlSection& section, std::int64_t index) {
    SweepRun run;
    run.label = read_folder_name(section, "label");
    if (!labels_.insert(run.label).second)
      section.reject_value("label", "another name: an earlier run has this one");
    run.phase = section.text("phase").value_or("");
    run.family = section.text("family").value_or("");
    run.order = section.integer("order", INT64_MIN).value_or(index);
    if (section.has_value("data")) {
      read_existing_capture(section, run);
      return run;
    }
    const bool statistics = section.boolean("statistics").value_or(statistics_of_all_);
    run.captures = captures_of_all_;
    if (!run.captures && !statistics)
      section.reject_value("statistics", "true: the sweep has capture: false");
    const auto own = section.text("config");
    const auto overrides = section.node("overrides");
    if (!overrides.IsNull() && !overrides.IsMap()) section.reject_value("overrides", "a map");
    section.reject_unknown_keys();
    read_run_configuration(
        {.own = own.value_or(""), .overrides = {overrides}, .statistics = statistics}, run);
    return run;
  }

  void add_checkpoint_runs(YamlSection& section, SweepConfig& config) {
    const auto filter = read_checkpoint_filter(section, source_.every, source_.log);
    const auto where = fmt::format("{}: checkpoints of {}", source_.file, filter.repository);
    auto names = filter.names;
    if (names.empty()) {
      auto& listed = config.listed[filter.repository];
      if (listed.empty()) listed = list_(config.name, filter.repository);
      names = listed;
    }
    for (const auto& branch : select_branches(filter, names, where)) {
      SweepRun run;
      run.label = branch.label;
      if (!is_safe_folder_name(run.label) || !labels_.insert(run.label).second)
        reject(
            "{}: found {} as a label, expected a name for a folder that no other run has; "
            "`prefix` goes before the labels of one repository",
            where, quote_text(run.label));
      run.phase = branch.phase;
      run.family = filter.family;
      run.order = std::ssize(config.runs);
      run.captures = captures_of_all_;
      std::vector<YAML::Node> overrides = {filter.overrides};
      if (const auto phase = filter.phases.find(branch.phase); phase != filter.phases.end())
        overrides.push_back(phase->second);
      read_run_configuration({.own = filter.config,
                              .overrides = overrides,
                              .statistics = statistics_of_all_,
                              .repository = filter.repository,
                              .branch = branch.branch},
                             run);
      config.runs.push_back(std::move(run));
    }
  }

  // Reads the entry of a run that analyses an existing capture: the location of the capture, and
  // metadata that it lacks.
  void read_existing_capture(YamlSection& section, SweepRun& run) const {
    run.data = section.required_text("data");
    prepend_folder_if_exists(data_folder_, run.data);
    run.model = section.text("model").value_or("");
    prepend_folder_if_exists(data_folder_, run.model);
    const auto queries = section.integer("q_heads", 1);
    const auto keys = section.integer("k_heads", 1);
    if (queries.has_value() != keys.has_value())
      section.reject_value("q_heads", "k_heads too: both or neither");
    if (queries && (*queries > kMost || *keys > kMost))
      section.reject_value("q_heads", fmt::format("at most {}", kMost));
    if (queries) run.head_counts = HeadCounts{static_cast<int>(*queries), static_cast<int>(*keys)};
    for (const auto layer : section.integers("nope_layers").value_or(std::vector<std::int64_t>{})) {
      if (layer < 0 || layer > kMost)
        section.reject_value("nope_layers", "numbers of layers, from 0 on");
      run.nope_layers.push_back(static_cast<int>(layer));
    }
    for (const char* key : {"config", "overrides"})
      if (section.has_value(key))
        section.reject_value(key, "nothing: the run has data, so that nothing is captured");
    section.reject_unknown_keys();
  }

  struct RunConfiguration {
    std::string own = {};               // configuration file instead of the base
    std::vector<YAML::Node> overrides;  // later entries take precedence
    bool statistics = false;
    std::string repository = {};  // repository and branch of a checkpoint filter
    std::string branch = {};
  };

  void read_run_configuration(const RunConfiguration& from, SweepRun& run) {
    captures_ = true;
    try {
      auto document = load_base_configuration(from.own);
      if (stats_.IsMap()) apply_overrides(document, stats_, "stats", source_.file);
      for (const auto& more : from.overrides) apply_overrides(document, more, "", source_.file);
      if (!from.repository.empty()) {
        const auto origin = source_.file + ": checkpoints:";
        override_yaml_value(document, "model.name", YAML::Node(from.repository), origin);
        override_yaml_value(document, "model.revision", YAML::Node(from.branch), origin);
      }
      apply_yaml_overrides(document, source_.overrides);
      for (const auto& [key, origin] : document.overridden)
        if (key == "output.data_root")
          reject("{} {}: a sweep chooses the folders of its captures; leave it out", origin, key);
      run.capture = read_capture_config(document);
      if (from.statistics) run.statistics = read_stats_config(document).stats;
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("run {}: {}", run.label, error.what()));
    }
    prepend_folder_if_exists(data_folder_, run.capture.dataset.path);
    prepend_folder_if_exists(data_folder_, run.capture.model.name);
    prepend_folder_if_exists(data_folder_, run.capture.tokenizer.name);
    if (run.statistics) prepend_folder_if_exists(data_folder_, run.statistics->retrieval);
  }

  // Loads the base configuration again for each run, because overrides modify it.
  YamlDocument load_base_configuration(const std::string& own) const {
    if (!own.empty()) return load_yaml(resolve_relative_to_file(source_.file, own));
    if (base_.IsScalar()) return load_yaml(resolve_relative_to_file(source_.file, base_.Scalar()));
    auto document = load_yaml(source_.file);
    document.root.reset(base_.IsMap() ? document.root["base"] : YAML::Node(YAML::NodeType::Map));
    return document;
  }

  const SweepSource& source_;
  const BranchLister& list_;
  YamlDocument document_;
  YAML::Node base_;
  std::string data_folder_;
  std::set<std::string> labels_;
  bool captures_ = false;  // at least one run makes a capture
  bool captures_of_all_ = true;
  bool statistics_of_all_ = false;
  YAML::Node stats_;  // statistics settings of the sweep, which override configuration files
};

}  // namespace

std::pair<std::string, std::string> checkpoint_name_and_revision(const SweepRun& run) {
  return {run.capture.model.name, run.capture.model.revision.value_or("")};
}

StatsConfig stats_config_of_run(const SweepRun& run, const std::string& data_root) {
  StatsConfig config{run.capture, *run.statistics};
  config.run.capture = {};  // statistics do not depend on it
  config.run.output = {};
  config.run.output.data_root = data_root;
  return config;
}

std::vector<std::string> list_hub_branches(const std::string& /*sweep*/,
                                           const std::string& repository) {
  return list_branches({RepositoryKind::model, repository});
}

SweepConfig read_sweep_config(const SweepSource& source, const BranchLister& list) {
  return SweepConfigReader(source, list).read();
}

}  // namespace qkscope
