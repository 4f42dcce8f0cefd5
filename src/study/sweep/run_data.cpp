// Capture, statistics and composition tables of the runs of a sweep.
#include <algorithm>
#include <chrono>
#include <thread>

#include <sys/stat.h>

#include "base/core/log.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "capture/format/data_root.h"
#include "capture/format/journal.h"
#include "capture/format/layout.h"
#include "capture/run/capture_run.h"
#include "capture/run/example_source.h"
#include "capture/stats_run/stats_plan.h"
#include "capture/stats_run/stats_run.h"
#include "qkscope/forward.h"
#include "qkscope/version.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

// Returns the modification time in seconds since 1970; 0 for a missing file.
double modification_time(const std::string& file) {
  struct stat status = {};
  if (::stat(file.c_str(), &status) != 0) return 0;
  constexpr double kNano = 1e-9;
  return static_cast<double>(status.st_mtim.tv_sec) +
         kNano * static_cast<double>(status.st_mtim.tv_nsec);
}

ShardProgressMap read_shard_progress(const std::string& folder, const Json& effective) {
  ShardProgressMap found;
  if (parse_store_uri(folder)) return found;  // runs in a store have no shards
  const DataRoot root(folder);
  for (const auto& shard : root.list_started_shards()) {
    const auto part = root.part_folder(shard);
    if (!Journal::has_entries(part)) continue;
    const Journal journal(part);
    if (!identity_matches_config(journal.manifest().identity, effective)) continue;
    found[shard.index] = {.count = shard.count,
                          .examples = journal.example_count(),
                          .tokens = journal.token_count(),
                          .complete = journal.is_complete(),
                          .began = modification_time(part + "/" + layout::kManifestFile),
                          .written = modification_time(part + "/" + layout::kJournalFile)};
  }
  return found;
}

constexpr char kCompositionRecord[] = "/composition.json";

// Returns the settings and the version that identify the composition tables.
Json composition_settings(const HeadCompositionConfig& section) {
  const auto& options = section.options;
  return {{"heads", section.heads},           {"texts", section.texts},
          {"max_tokens", section.max_tokens}, {"samples", options.samples},
          {"uniform", options.uniform},       {"seed", options.seed},
          {"biases", options.biases},         {"top", options.top},
          {"qkscope", version_string()}};
}

// Returns the first texts of the run's dataset as token ids.
std::vector<std::vector<std::int32_t>> read_composition_texts(
    const RunPlan& plan, const HeadCompositionConfig& section) {
  std::vector<std::vector<std::int32_t>> texts;
  ExampleSource source(plan, {});
  for (Example example; std::ssize(texts) < section.texts && source.next(example);) {
    if (std::ssize(example.ids) > section.max_tokens)
      example.ids.resize(static_cast<std::size_t>(section.max_tokens));
    if (!example.ids.empty()) texts.push_back(std::move(example.ids));
  }
  return texts;
}

}  // namespace

ShardProgressMap read_capture_progress(const SweepFolder& folder, const SweepRun& run) {
  if (folder.has_complete_capture(run)) return {};
  return read_shard_progress(folder.capture_location(run.label), effective_config(run.capture));
}

ShardProgressMap read_statistics_progress(const SweepFolder& folder, const SweepRun& run) {
  if (folder.has_complete_statistics(run)) return {};
  const auto statistics = folder.statistics_location(run.label);
  return read_shard_progress(statistics,
                             effective_stats_config(stats_config_of_run(run, statistics)));
}

std::int64_t started_shard_count(const SweepFolder& folder, const SweepRun& run) {
  auto shards = read_capture_progress(folder, run);
  if (shards.empty()) shards = read_statistics_progress(folder, run);
  return shards.empty() ? 0 : shards.begin()->second.count;
}

RunDataProducer::RunDataProducer(const SweepConfig& config, const SweepFolder& folder,
                                 const SweepOptions& options, std::vector<const SweepRun*> runs,
                                 bool quiet)
    : config_(config),
      folder_(folder),
      options_(options),
      runs_(std::move(runs)),
      quiet_(quiet),
      released_(runs_.size()) {}

RunReport::Outcome RunDataProducer::compute_shard(std::size_t i) {
  const auto missing = find_missing_data(*runs_[i]);
  if (!missing.is_any_missing()) return RunReport::Outcome::already_done;
  fetch_inputs(i);
  return compute_missing_data(*runs_[i], missing, options_.texts) ? RunReport::Outcome::done
                                                                  : RunReport::Outcome::interrupted;
}

RunReport::Outcome RunDataProducer::compute_capture_and_statistics(std::size_t i) {
  const auto& run = *runs_[i];
  if (options_.part == SweepPart::merge)
    for (const auto& folder :
         {folder_.capture_location(run.label), folder_.statistics_location(run.label)}) {
      // Waits for the lock of a shard: a task whose script was killed may still be shutting down.
      const auto lock_file = DataRoot(folder).parts_folder() + "/" + layout::kLockFile;
      for (bool told = false; path_exists(lock_file) && !is_stop_requested(); told = true) {
        const FileLock lock(lock_file, FileLock::LockMode::exclusive, FileLock::Blocking::no);
        if (lock.is_held()) break;
        if (!told) log::info("{}: waiting for a task that is at it", folder);
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
      }
    }
  if (is_stop_requested()) return RunReport::Outcome::interrupted;
  const auto missing = find_missing_data(run);
  folder_.remove_leftover_parts(run);
  if (missing.is_any_missing()) {
    const auto begun = started_shard_count(folder_, run);
    const auto count = begun > 0 ? begun : options_.texts.count;
    if (count == 1) fetch_inputs(i);
    if (!(count == 1 ? compute_missing_data(run, missing, {})
                     : compute_missing_data_in_shards(i, missing, count)))
      return RunReport::Outcome::interrupted;
  }
  if (!config_.composition) release_weights(i);  // composition tables need them again
  return missing.is_any_missing() ? RunReport::Outcome::done : RunReport::Outcome::already_done;
}

void RunDataProducer::release_weights(std::size_t i) {
  const bool evict = options_.evict && options_.part == SweepPart::all;
  if (!evict || !runs_[i]->data.empty()) return;
  const std::lock_guard lock(mutex_);
  released_[i] = true;
  const auto checkpoint = checkpoint_name_and_revision(*runs_[i]);
  for (std::size_t other = 0; other < runs_.size(); ++other)
    if (!released_[other] && checkpoint_name_and_revision(*runs_[other]) == checkpoint) return;
  const auto freed = evict_weights(checkpoint.first, checkpoint.second);
  if (freed > 0) log::info("{}: {} of weights evicted", runs_[i]->label, format_bytes(freed));
}

RunDataProducer::MissingRunData RunDataProducer::find_missing_data(const SweepRun& run) const {
  return {.capture = !folder_.has_complete_capture(run),
          .statistics = !folder_.has_complete_statistics(run)};
}

// Computes the missing data of a shard in shared forward passes. Returns false if stopped.
bool RunDataProducer::compute_missing_data(const SweepRun& run, const MissingRunData& missing,
                                           const Shard& texts) const {
  const auto finished = [](const auto& result) {
    return result.outcome != CaptureResult::Outcome::interrupted;
  };
  const auto statistics = folder_.statistics_location(run.label);
  if (missing.statistics && !folder_.is_in_store()) make_folders(parent_folder(statistics));
  // If finished statistics exist at this point, they belong to another configuration.
  const StatsOptions stats_options{
      .shard = texts,
      .overwrite = options_.overwrite && folder_.has_any_statistics(run.label),
      .quiet = quiet_,
      .stop = options_.stop};
  const auto stats_plan = [&] {
    return make_stats_plan(stats_config_of_run(run, statistics), config_.compute);
  };
  if (!missing.capture) return finished(run_stats(stats_plan(), stats_options));
  CaptureConfig config = run.capture;
  config.output.data_root = folder_.capture_location(run.label);
  const auto plan = make_plan(config, config_.compute);
  const CaptureOptions options{
      .shard = texts,
      .overwrite = options_.overwrite && !can_resume_capture(plan.run_plan()),
      .quiet = quiet_,
      .stop = options_.stop};
  if (!missing.statistics) return finished(run_capture(plan, options));
  if (plan.run_plan().workers.size() > 1 || plan.run_plan().engine)
    return finished(run_capture(plan, options)) && finished(run_stats(stats_plan(), stats_options));
  const CaptureRequest capture{.plan = plan.run_plan(), .options = options};
  const auto joint = run_stats(stats_plan().run_plan(), stats_options, &capture);
  return finished(joint.statistics) &&
         finished(joint.capture ? *joint.capture : run_capture(plan, options));
}

// Computes unfinished shards, then merges all shards (needs no GPU). Returns false if stopped.
bool RunDataProducer::compute_missing_data_in_shards(std::size_t run_index,
                                                     const MissingRunData& missing,
                                                     std::int64_t shard_count) {
  const auto& run = *runs_[run_index];
  const auto captured = read_capture_progress(folder_, run);
  const auto measured = read_statistics_progress(folder_, run);
  bool fetched = false;
  for (std::int64_t index = 0; index < shard_count; ++index) {
    const MissingRunData here{
        .capture = missing.capture && !map_value_or(captured, index, {}).complete,
        .statistics = missing.statistics && !map_value_or(measured, index, {}).complete};
    if (!here.is_any_missing()) continue;
    if (!std::exchange(fetched, true)) fetch_inputs(run_index);
    if (!compute_missing_data(run, here, {index, shard_count})) return false;
  }
  if (missing.capture) merge_capture(folder_.capture_location(run.label), quiet_);
  if (missing.statistics) merge_stats_shards(folder_.statistics_location(run.label));
  return true;
}

// Downloads the inputs (checkpoint, tokenizer, texts) of run i. Without parallel jobs, also starts
// a background download of the inputs of the next unfinished run with another checkpoint.
void RunDataProducer::fetch_inputs(std::size_t i) {
  if (ahead_.valid()) ahead_.wait();
  fetch_capture_inputs(runs_[i]->capture, {.quiet = quiet_, .stop = options_.stop});
  if (options_.jobs > 1) return;
  const auto next = std::find_if(
      runs_.begin() + static_cast<std::ptrdiff_t>(i) + 1, runs_.end(), [&](const SweepRun* run) {
        return checkpoint_name_and_revision(*run) != checkpoint_name_and_revision(*runs_[i]) &&
               !folder_.has_complete_data(*run);
      });
  if (next == runs_.end()) return;
  // Downloads without progress output: the progress line belongs to the current run.
  const FetchOptions options{.quiet = true, .stop = options_.stop};
  ahead_ = run_in_background([capture = (*next)->capture, options] {
    try {
      fetch_capture_inputs(capture, options);
    } catch (const Error&) {  // fetch_inputs() reports it as the failure of that run
    }
  });
}

HeadCompositionConfig read_composition_config(YamlSection section) {
  HeadCompositionConfig read;
  read.heads = section.required_text("heads");
  read.texts = section.integer("texts", 1).value_or(read.texts);
  read.max_tokens = section.integer("max_tokens", 1).value_or(read.max_tokens);
  auto& options = read.options;
  options.samples = section.integer("samples", 1).value_or(options.samples);
  options.top = section.integer("top", 1).value_or(options.top);
  options.uniform = section.boolean("uniform").value_or(false);
  options.biases = section.boolean("biases").value_or(false);
  options.seed = static_cast<std::uint64_t>(section.integer("seed", 0).value_or(0));
  section.reject_unknown_keys();
  return read;
}

bool has_current_composition_scores(const HeadCompositionConfig& section,
                                    const std::string& results) {
  try {
    return load_json(results + kCompositionRecord) == composition_settings(section);
  } catch (const Error&) {
    return false;
  }
}

void write_composition_scores(const SweepConfig& config, const SweepRun& run,
                              const std::string& results, const FetchOptions& fetch) {
  fetch_capture_inputs(run.capture, fetch);
  const auto plan = make_run_plan(run.capture, config.compute);
  const auto& backend = plan.workers.front();
  const auto model =
      Model::load(plan.model_folder, {.device = device_name(backend.device),
                                      .dtype = std::string(dtype_name(backend.dtype)),
                                      .config_overrides = run.capture.model.config_overrides,
                                      .device_memory = backend.device_memory,
                                      .longest_batch = config.composition->max_tokens,
                                      .quiet = true});
  auto options = config.composition->options;
  options.heads = parse_heads(config.composition->heads, model.config());
  options.label = run.label;
  options.on_text = [&](std::int64_t) {
    if (fetch.stop != nullptr && fetch.stop->load()) reject("stopped");
  };
  const auto found = composition(model, read_composition_texts(plan, *config.composition), options);
  for (const auto& [name, table] : {std::pair("composition", &found.pairs),
                                    std::pair("composition_components", &found.components)}) {
    table->write_csv(fmt::format("{}/{}.csv", results, name));
    table->write_parquet(fmt::format("{}/{}.parquet", results, name));
  }
  write_json_file(results + kCompositionRecord, composition_settings(*config.composition));
}

}  // namespace qkscope
