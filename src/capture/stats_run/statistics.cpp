// Implements the functions of qkscope/statistics.h that run statistics.
#include "qkscope/statistics.h"

#include "base/core/error.h"
#include "base/io/folder.h"
#include "base/yaml/yaml_config.h"
#include "capture/format/stored_run.h"
#include "capture/stats_format/stats_file.h"
#include "capture/stats_run/stats_config.h"
#include "capture/stats_run/stats_folder.h"
#include "capture/stats_run/stats_plan.h"
#include "capture/stats_run/stats_run.h"

namespace qkscope {
namespace {

constexpr int kJsonIndent = 2;

StatsConfig read_with_overrides(YamlDocument document, const std::vector<std::string>& overrides) {
  override_values(document, overrides);
  return read_stats_config(document);
}

}  // namespace

StatsConfig read_stats_config(const std::string& file, const std::vector<std::string>& overrides) {
  return translate_exceptions([&] { return read_with_overrides(load_yaml(file), overrides); });
}

StatsConfig parse_stats_config(const std::string& yaml, const std::vector<std::string>& overrides) {
  return translate_exceptions(
      [&] { return read_with_overrides(parse_yaml(yaml, "config"), overrides); });
}

StatsPlan::StatsPlan(std::shared_ptr<const StatsRunPlan> plan) : plan_(std::move(plan)) {}

const StatsConfig& StatsPlan::config() const {
  return plan_->config;
}

const ModelConfig& StatsPlan::model() const {
  return plan_->run.model;
}

Device StatsPlan::device() const {
  return plan_->run.backend.device;
}

std::size_t StatsPlan::workers() const {
  return plan_->run.workers.size();
}

DType StatsPlan::dtype() const {
  return plan_->run.backend.dtype;
}

const MemoryPlan& StatsPlan::memory() const {
  return plan_->run.memory;
}

StatsPlan make_stats_plan(const StatsConfig& config, const ComputeOptions& compute) {
  return translate_exceptions([&] {
    return StatsPlan(std::make_shared<const StatsRunPlan>(make_stats_run_plan(config, compute)));
  });
}

StatsDryRun dry_run_stats(const StatsPlan& plan, const Shard& shard) {
  return translate_exceptions([&] { return dry_run(plan.run_plan(), shard); });
}

std::string plan_json(const StatsPlan& plan, const StatsDryRun& dry) {
  return translate_exceptions([&] { return to_json(plan.run_plan(), dry).dump(kJsonIndent); });
}

std::string result_json(const StatsResult& result) {
  return translate_exceptions([&] {
    const Json json = {{"outcome", outcome_name(result.outcome)},
                       {"examples", result.examples},
                       {"tokens", result.tokens},
                       {"seconds", result.seconds},
                       {"load_seconds", result.load_seconds},
                       {"forward_seconds", result.forward_seconds}};
    return json.dump(kJsonIndent);
  });
}

StatsResult run_stats(const StatsPlan& plan, const StatsOptions& options) {
  return translate_exceptions([&] { return run_stats(plan.run_plan(), options); });
}

bool holds_statistics(const std::string& folder) {
  return translate_exceptions([&] {
    if (const auto address = parse_store_address(folder))
      return stored_kind(*address) == StoredRun::kStatistics;
    const StatsFolder statistics(folder);
    if (statistics.finished()) return true;
    const auto shards = statistics.shards();
    return !shards.empty() &&
           Journal(statistics.part(shards.front())).manifest().identity.contains("stats");
  });
}

StatsResult merge_stats_shards(const std::string& folder) {
  return translate_exceptions([&] { return merge_shards(folder); });
}

StatsResult merge_stats_folders(const std::vector<std::string>& folders, const std::string& out) {
  return translate_exceptions([&] {
    if (folders.empty()) bad_input("no folders of statistics to merge");
    return merge_folders(folders, out);
  });
}

}  // namespace qkscope
