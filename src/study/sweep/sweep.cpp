// Implements demo_sweep() and the class Sweep, except Sweep::run().
#include "study/sweep/sweep.h"

#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "capture/format/capture_source.h"
#include "capture/run/example_source.h"
#include "capture/stats_run/stats_plan.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// Returns a relative path for a file below the working folder, as a user would type it.
std::string relative_path_text(const fs::path& path) {
  std::error_code ignored;
  const auto relative = fs::relative(path, ignored);
  const bool below = !relative.empty() && *relative.begin() != "..";
  return below ? relative.string() : path.lexically_normal().string();
}

// Returns a key made from everything that determines the cost of a run: configuration, config.json
// and tokenizer, without names and revisions. Checkpoints of one training run share the key.
std::string cost_cache_key(Json config, const RunPlan& plan) {
  for (const char* section : {"model", "tokenizer"})
    for (const char* key : {"name", "revision"}) config[section].erase(key);
  config["output"] = {};
  return Json{config, fingerprint_config_and_tokenizer(plan)}.dump(-1, ' ', false,
                                                                   Json::error_handler_t::replace);
}

class SweepPlanner {
 public:
  SweepPlanner(const SweepConfig& config, const SweepFolder& folder)
      : config_(config), folder_(folder) {}

  PlannedRun plan_run(const SweepRun& run) {
    PlannedRun planned{
        .label = run.label, .capture = {}, .statistics = {}, .publish = "", .error = ""};
    try {
      if (run.publish) {
        planned.publish = run.publish->repo + "@" + run.publish->branch;
        planned.published = folder_.is_capture_published(run);
      }
      planned.captured = folder_.has_complete_capture(run);
      planned.measured = folder_.has_complete_statistics(run);
      if (!run.data.empty() && !parse_hub_capture_name(run.data))
        index_capture(run.data);  // throws if the capture is damaged
      const bool ready = planned.captured && planned.measured;
      planned.analysed = ready && folder_.has_current_analysis(config_, run);
      if (ready) return planned;
      fetch_capture_inputs(run.capture, {.weights = false, .quiet = true});
      bool beside = false;
      if (!planned.captured) {
        const auto plan = make_plan(run.capture, config_.compute);
        beside = plan.workers() == 1;
        planned.capture = capture_cost(run, plan);
      }
      if (!planned.measured) planned.statistics = statistics_cost(run, beside);
      const auto [name, revision] = checkpoint_name_and_revision(run);
      const auto bytes = checkpoint_bytes(name, revision);
      planned.weights = bytes.weights;
      planned.to_download = bytes.to_download;
    } catch (const Error& error) {
      planned.error = error.what();
      planned.error_kind = error.kind();
    }
    return planned;
  }

 private:
  PlannedRun::Capture capture_cost(const SweepRun& run, const CapturePlan& plan) {
    const auto key = cost_cache_key(effective_config(run.capture), plan.run_plan());
    if (const auto known = captures_.find(key); known != captures_.end()) return known->second;
    const auto dry = dry_run(plan, {});
    return captures_[key] = {.examples = dry.examples,
                             .tokens = dry.tokens,
                             .files = dry.files,
                             .rows = dry.rows,
                             .bytes = dry.bytes,
                             .flop = dry.flop};
  }

  // Estimates the cost of statistics. Excludes forward passes shared with the capture (`beside`).
  PlannedRun::Statistics statistics_cost(const SweepRun& run, bool beside) {
    const auto config = stats_config_of_run(run, folder_.statistics_location(run.label));
    const auto plan = make_stats_plan(config, config_.compute);
    const auto key = cost_cache_key(effective_stats_config(config), plan.run_plan().run);
    if (!statistics_.contains(key)) statistics_.emplace(key, dry_run_stats(plan, {}));
    const auto& dry = statistics_.at(key);
    return {
        .examples = dry.examples,
        .tokens = dry.tokens,
        .beside = beside,
        .flop = (beside ? 0 : dry.forward_flop) + dry.moments_flop + dry.near_flop + dry.all_flop};
  }

  const SweepConfig& config_;
  const SweepFolder& folder_;
  std::map<std::string, PlannedRun::Capture> captures_;  // keyed by cost_cache_key()
  std::map<std::string, StatsDryRun> statistics_;        // keyed by cost_cache_key()
};

// Sets weights_on_disk of each run, given downloads, prefetching and eviction. Sets to_download to
// 0 if an earlier run downloads the same checkpoint.
void plan_disk_space(const std::vector<const SweepRun*>& runs, const SweepOptions& options,
                     std::vector<PlannedRun>& planned) {
  using CheckpointName = std::pair<std::string, std::string>;
  std::map<CheckpointName, std::uint64_t> on_disk;  // bytes of weights by checkpoint
  const auto add = [&](std::size_t i) {
    if (!path_exists(runs[i]->capture.model.name))
      on_disk[checkpoint_name_and_revision(*runs[i])] = planned[i].weights;
  };
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (planned[i].to_download < planned[i].weights) add(i);  // already in the Hub cache
  std::set<CheckpointName> downloaded;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (planned[i].weights == 0) continue;
    const auto checkpoint = checkpoint_name_and_revision(*runs[i]);
    if (!downloaded.insert(checkpoint).second) planned[i].to_download = 0;
    add(i);
    // Count later checkpoints that are on disk while run i runs: prefetched, or of parallel jobs.
    int ahead = std::max(1, options.jobs - 1);
    bool last_use = true;
    for (std::size_t later = i + 1; later < runs.size(); ++later) {
      if (planned[later].weights == 0) continue;
      const bool same = checkpoint_name_and_revision(*runs[later]) == checkpoint;
      last_use = last_use && !same;
      if (!same && ahead-- > 0) add(later);
    }
    for (const auto& [name, bytes] : on_disk) planned[i].weights_on_disk += bytes;
    if (options.evict && last_use) on_disk.erase(checkpoint);
  }
}

}  // namespace

Sweep Sweep::read(const SweepSource& source, const std::string& results) {
  return translate_exceptions([&] {
    // Uses the branches recorded at the start of the sweep, so that new branches do not change it.
    auto config =
        read_sweep_config(source, [&](const std::string& name, const std::string& repository) {
          const auto folder = SweepFolder::open(results, name);
          folder.download_sweep_files();
          const auto recorded = folder.recorded_branches(repository);
          return recorded ? *recorded : list_hub_branches(name, repository);
        });
    auto folder = SweepFolder::open(results, config.name);
    return Sweep(std::make_unique<const State>(State{std::move(config), std::move(folder)}));
  });
}

Sweep::Sweep(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Sweep::~Sweep() = default;
Sweep::Sweep(Sweep&&) noexcept = default;
Sweep& Sweep::operator=(Sweep&&) noexcept = default;

const std::string& Sweep::name() const {
  return state_->config.name;
}

const std::string& Sweep::folder() const {
  return state_->folder.path();
}

const std::string& Sweep::place() const {
  return state_->folder.path_or_uri();
}

const SlurmOptions& Sweep::slurm() const {
  return state_->config.slurm;
}

std::vector<RunEntry> Sweep::runs() const {
  return translate_exceptions([&] { return state_->folder.read_run_entries(state_->config); });
}

bool Sweep::put_figures(bool quiet) const {
  return translate_exceptions([&] {
    const auto& folder = state_->folder;
    {
      const auto lock = folder.lock_tables();
      if (folder.upload_sweep_files(state_->config, quiet)) return true;
    }
    write_combined_tables(folder, state_->config, quiet);
    return false;
  });
}

std::vector<OverviewRow> Sweep::overview() const {
  return translate_exceptions([&] { return make_overview_rows(state_->folder, runs()); });
}

SweepPart parse_sweep_part(std::string_view name, std::string_view what) {
  // In the order of SweepPart.
  constexpr std::string_view kNames[] = {"", "capture", "merge", "analyse", "tables"};
  const auto* found = std::ranges::find(kNames, name);
  if (found != std::end(kNames)) return static_cast<SweepPart>(found - kNames);
  reject("{}: found {}, expected capture, merge, analyse or tables", what, quote_text(name));
}

std::vector<const SweepRun*> select_runs(const SweepConfig& config, const SweepOptions& options) {
  const auto labels = to_vector(config.runs, &SweepRun::label);
  for (const auto& label : options.only) {
    if (std::ranges::count(labels, label) > 0) continue;
    const auto near = closest_spelling(label, labels);
    reject("--only {}: the sweep {} has no such run; {}", quote_text(label), config.name,
           near.empty() ? fmt::format("there are {}", fmt::join(labels, ", "))
                        : fmt::format("did you mean {}?", near));
  }
  std::vector<const SweepRun*> chosen;
  std::int64_t index = 0;
  for (const auto& run : config.runs) {
    const bool in_shard = index++ % options.shard.count == options.shard.index;
    if (in_shard && (options.only.empty() || std::ranges::count(options.only, run.label) > 0))
      chosen.push_back(&run);
  }
  return chosen;
}

SweepSource demo_sweep() {
  return translate_exceptions([&]() -> SweepSource {
    std::vector<std::string> looked;
    for (const fs::path folder : shared_data_folders()) {
      const auto data = folder / "demo";
      // configs/ is inside the data folder of an installation, but next to it in the source tree.
      constexpr auto kFile = "configs/demo/sweep.yaml";
      const auto inside = folder / kFile;
      const auto file = path_exists(inside.string()) ? inside : folder.parent_path() / kFile;
      if (path_exists((data / "corpus.jsonl").string()) && path_exists(file.string()))
        return {.file = relative_path_text(file),
                .overrides = {},
                .data_folder = relative_path_text(data)};
      looked.push_back(data.string());
    }
    reject(
        "the demo's checkpoints and texts are not there; looked in {}. Set QKSCOPE_DATA to the "
        "folder share/qkscope of an installation",
        fmt::join(looked, " and "));
  });
}

std::vector<PlannedRun> Sweep::plan(const SweepOptions& options) const {
  return translate_exceptions([&] {
    state_->folder.download_sweep_and_runs(state_->config);
    const auto runs = select_runs(state_->config, options);
    SweepPlanner planner(state_->config, state_->folder);
    auto planned = to_vector(runs, [&](const SweepRun* run) { return planner.plan_run(*run); });
    plan_disk_space(runs, options, planned);
    return planned;
  });
}

}  // namespace qkscope
