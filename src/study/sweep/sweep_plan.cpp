#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "capture/format/capture_source.h"
#include "capture/format/metadata.h"
#include "capture/run/capture_plan.h"
#include "capture/run/example_source.h"
#include "capture/stats_run/stats_plan.h"
#include "qkscope/capture.h"
#include "qkscope/hub.h"
#include "qkscope/statistics.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

// Key of everything that determines the cost of a run: configuration, config.json and tokenizer,
// without their names. Checkpoints of one training run share a key.
std::string cost_key(Json config, const RunPlan& plan) {
  config["model"].erase("name");
  config["model"].erase("revision");
  config["tokenizer"].erase("name");
  config["tokenizer"].erase("revision");
  config["output"] = {};
  return Json{config, fingerprint_small_inputs(plan)}.dump(-1, ' ', false,
                                                           Json::error_handler_t::replace);
}

class SweepPlanner {
 public:
  SweepPlanner(const SweepConfig& config, const SweepFolder& folder)
      : config_(config), folder_(folder) {}

  PlannedRun plan(const SweepRun& run) {
    PlannedRun planned{
        .label = run.label, .capture = {}, .statistics = {}, .publish = "", .error = ""};
    try {
      fill(run, planned);
    } catch (const Error& error) {
      planned.error = error.what();
      planned.error_kind = error.kind();
    }
    return planned;
  }

 private:
  void fill(const SweepRun& run, PlannedRun& planned) {
    if (run.publish) {
      planned.publish = run.publish->repo + "@" + run.publish->branch;
      planned.published = folder_.published(run);
    }
    planned.captured = folder_.captured(run);
    planned.measured = folder_.measured(run);
    if (!run.data.empty() && !parse_hub_capture(run.data))
      index_capture(run.data);  // throws if damaged
    const bool ready = planned.captured && planned.measured;
    planned.analysed = ready && folder_.analysed(config_, run);
    if (ready) return;
    fetch_capture_inputs(run.capture, {.weights = false, .quiet = true});
    bool beside = false;
    if (!planned.captured) {
      const auto plan = make_plan(run.capture, config_.compute);
      beside = plan.workers() == 1;
      planned.capture = capture_cost(run, plan);
    }
    if (!planned.measured) planned.statistics = statistics_cost(run, beside);
    const auto& model = run.capture.model;
    const auto bytes = checkpoint_bytes(model.name, model.revision.value_or(""));
    planned.weights = bytes.weights;
    planned.to_download = bytes.to_download;
  }

  PlannedRun::Capture capture_cost(const SweepRun& run, const CapturePlan& plan) {
    const auto key = cost_key(effective_config(run.capture), plan.run_plan());
    const auto [found, anew] = captures_.try_emplace(key);
    if (anew) {
      const auto dry = dry_run(plan, {});
      found->second = {.examples = dry.examples,
                       .tokens = dry.tokens,
                       .files = dry.files,
                       .rows = dry.rows,
                       .bytes = dry.bytes,
                       .flop = dry.flop};
    }
    return found->second;
  }

  // `beside`: statistics share the forward passes of the capture.
  PlannedRun::Statistics statistics_cost(const SweepRun& run, bool beside) {
    const auto config = stats_config(run, folder_.statistics(run.label));
    const auto plan = make_stats_plan(config, config_.compute);
    const auto key = cost_key(effective_stats_config(config), plan.run_plan().run);
    const auto [found, anew] = statistics_.try_emplace(key);
    if (anew) found->second = dry_run_stats(plan, {});
    const auto& dry = found->second;
    return {
        .examples = dry.examples,
        .tokens = dry.tokens,
        .beside = beside,
        .flop = (beside ? 0 : dry.forward_flop) + dry.moments_flop + dry.near_flop + dry.all_flop};
  }

  const SweepConfig& config_;
  const SweepFolder& folder_;
  std::map<std::string, PlannedRun::Capture> captures_;  // keyed by cost_key()
  std::map<std::string, StatsDryRun> statistics_;        // keyed by cost_key()
};

using CheckpointName = std::pair<std::string, std::string>;  // name and revision

CheckpointName checkpoint_of(const SweepRun& run) {
  return {run.capture.model.name, run.capture.model.revision.value_or("")};
}

// Simulates which weights are on disk while the sweep downloads and evicts checkpoints.
class DiskPlan {
 public:
  DiskPlan(const std::vector<const SweepRun*>& runs, std::vector<PlannedRun>& planned,
           const SweepOptions& options)
      : runs_(runs), planned_(planned), options_(options) {}

  void follow() {
    for (std::size_t i = 0; i < runs_.size(); ++i)
      if (planned_[i].to_download < planned_[i].weights) hold(i);  // cached by an earlier run
    std::set<CheckpointName> downloaded;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (!needs_weights(i)) continue;
      if (!downloaded.insert(checkpoint_of(*runs_[i])).second) planned_[i].to_download = 0;
      hold(i);
      hold_next(i);
      planned_[i].weights_on_disk = total();
      if (options_.evict && is_last(i)) held_.erase(checkpoint_of(*runs_[i]));
    }
  }

 private:
  bool needs_weights(std::size_t i) const { return planned_[i].weights > 0; }

  void hold(std::size_t i) {
    if (!path_exists(runs_[i]->capture.model.name))
      held_[checkpoint_of(*runs_[i])] = planned_[i].weights;
  }

  bool is_last(std::size_t i) const {
    for (std::size_t later = i + 1; later < runs_.size(); ++later)
      if (needs_weights(later) && checkpoint_of(*runs_[later]) == checkpoint_of(*runs_[i]))
        return false;
    return true;
  }

  // With one job the next checkpoint is prefetched; parallel jobs hold one checkpoint each.
  void hold_next(std::size_t i) {
    int more = std::max(1, options_.jobs - 1);
    for (std::size_t next = i + 1; next < runs_.size() && more > 0; ++next)
      if (needs_weights(next) && checkpoint_of(*runs_[next]) != checkpoint_of(*runs_[i])) {
        hold(next);
        --more;
      }
  }

  std::uint64_t total() const {
    std::uint64_t bytes = 0;
    for (const auto& [checkpoint, weights] : held_) bytes += weights;
    return bytes;
  }

  const std::vector<const SweepRun*>& runs_;
  std::vector<PlannedRun>& planned_;
  const SweepOptions& options_;
  std::map<CheckpointName, std::uint64_t> held_;
};

}  // namespace

std::vector<PlannedRun> plan_sweep(const SweepConfig& config, const SweepFolder& folder,
                                   const SweepOptions& options) {
  const auto runs = chosen_runs(config, options);
  SweepPlanner planner(config, folder);
  std::vector<PlannedRun> planned;
  planned.reserve(runs.size());
  for (const auto* run : runs) planned.push_back(planner.plan(*run));
  DiskPlan(runs, planned, options).follow();
  return planned;
}

}  // namespace qkscope
