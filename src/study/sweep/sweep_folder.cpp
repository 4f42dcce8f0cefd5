#include "study/sweep/sweep_folder.h"

#include <filesystem>

#include "analysis/results/write_results.h"
#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "capture/format/capture_source.h"
#include "capture/format/data_root.h"
#include "capture/format/metadata.h"
#include "capture/stats_run/stats_plan.h"
#include "capture/stats_run/stats_run.h"
#include "input/hub/settings.h"
#include "qkscope/version.h"

namespace qkscope {
namespace {

// Identifies a publication: endpoint, repository, branch and content.
Json publication(const SweepRun& run, const std::string& data_root) {
  return {{"endpoint", hub_settings().endpoint.to_string()},
          {"repo", run.publish->repo},
          {"branch", run.publish->branch},
          {"capture_hash", capture_hash(data_root)}};
}

std::string failure_file(const std::string& results) {
  return results + "/failure.json";
}

// Returns null for a missing or unreadable file, so that the stage is repeated.
Json load_or_null(const std::string& path) {
  if (!path_exists(path)) return {};
  try {
    return load_json(path);
  } catch (const Error&) {
    return {};
  }
}

// Configuration for runs.json: absolute paths are reduced to their last component.
Json shown_config(const CaptureConfig& capture) {
  Json config = effective_config(capture);
  const auto shorten = [&](const char* section, const char* key) {
    auto& name = config[section][key];
    if (std::filesystem::path(name.get<std::string>()).is_absolute())
      name = short_name(name.get<std::string>());
  };
  shorten("dataset", "path");
  shorten("model", "name");
  shorten("tokenizer", "name");
  return config;
}

RunEntry entry_from(const Json& json, const std::string& file) {
  try {
    RunEntry entry;
    entry.label = json.at("label");
    entry.phase = json.at("phase");
    entry.order = json.at("order");
    const std::string state = json.at("state");
    entry.state = state == "done"     ? RunState::done
                  : state == "failed" ? RunState::failed
                                      : RunState::pending;
    entry.error = json.value("error", "");
    return entry;
  } catch (const Json::exception& error) {
    bad_input("{}: not a list of runs as a sweep writes it: {}", file, error.what());
  }
}

}  // namespace

std::string to_string(RunState state) {
  constexpr const char* kNames[] = {"pending", "done", "failed"};
  return kNames[static_cast<int>(state)];
}

SweepFolder SweepFolder::of(const std::string& results, const std::string& name) {
  const auto address = parse_store_address(results);
  if (!address) return SweepFolder(results + "/" + name);
  auto stored = std::make_shared<StoredSweep>(address->below(name));
  SweepFolder folder(stored->folder());
  folder.stored_ = std::move(stored);
  return folder;
}

std::string SweepFolder::capture(const std::string& label) const {
  return stored_ ? stored_->capture(label) : path_ + "/captures/" + label;
}

std::string SweepFolder::statistics(const std::string& label) const {
  return stored_ ? stored_->statistics(label) : path_ + "/statistics/" + label;
}

void SweepFolder::make() const {
  for (const auto* folder : {"/runs", "/.locks"}) make_folders(path_ + folder);
  if (!stored_) make_folders(path_ + "/captures");
}

FileLock SweepFolder::lock_run(const std::string& label) const {
  return {path_ + "/.locks/" + label + ".run", FileLock::Mode::exclusive, FileLock::Wait::no};
}

FileLock SweepFolder::lock_tables() const {
  return {path_ + "/.locks/tables", FileLock::Mode::exclusive, FileLock::Wait::yes};
}

void SweepFolder::download_files() const {
  if (!stored_) return;
  make();
  const auto lock = lock_tables();
  stored_->download_files();
}

void SweepFolder::download(const SweepConfig& config) const {
  if (!stored_) return;
  make();
  const auto lock = lock_tables();
  download_locked(config);
}

void SweepFolder::download_locked(const SweepConfig& config) const {
  if (!stored_) return;
  stored_->download_files();
  parallel_for(std::ssize(config.runs), [&](std::int64_t i) {
    const auto& label = config.runs[static_cast<std::size_t>(i)].label;
    if (const auto lock = lock_run(label); lock.held()) stored_->download_run(label);
  });
}

void SweepFolder::upload_run(const std::string& label, bool quiet) const {
  if (stored_) stored_->upload_run(label, quiet);
}

void SweepFolder::delete_downloads(const std::string& label) const {
  if (stored_) stored_->delete_downloads(label);
}

bool SweepFolder::upload(const SweepConfig& config, bool quiet) const {
  if (!stored_) return true;
  std::vector<std::string> labels;
  for (const auto& run : config.runs) labels.push_back(run.label);
  return stored_->upload_files(labels, quiet);
}

void SweepFolder::mark_changed(const std::string& label) const {
  if (stored_) stored_->mark_changed(label);
}

AnalyzeOptions SweepFolder::analysis(const SweepConfig& config, const SweepRun& run) const {
  AnalyzeOptions options = config.analysis;
  options.label = run.label;
  options.data_root = !run.data.empty() ? run.data
                      : run.captures    ? capture(run.label)
                                        : statistics(run.label);
  options.model = run.model;
  options.head_counts = run.head_counts;
  options.nope_layers = run.nope_layers;
  return options;
}

std::optional<AnalyzeOptions> SweepFolder::exact_analysis(const SweepConfig& config,
                                                          const SweepRun& run) const {
  if (!run.captures || !run.statistics) return {};
  AnalyzeOptions options = config.analysis;
  options.label = run.label;
  options.data_root = statistics(run.label);
  options.max_tokens = 0;  // statistics have no rows to sample from
  return options;
}

bool SweepFolder::captured(const SweepRun& run) const {
  if (!run.data.empty() || !run.captures) return true;
  const auto effective = effective_config(run.capture);
  return stored_ ? stored_->has_capture(run.label, effective)
                 : DataRoot(capture(run.label)).holds(effective);
}

bool SweepFolder::measured(const SweepRun& run) const {
  if (!run.statistics) return true;
  const auto folder = statistics(run.label);
  const auto effective = effective_stats_config(stats_config(run, folder));
  return stored_ ? stored_->has_statistics(run.label, effective)
                 : DataRoot(folder, kStatisticsRun).holds(effective);
}

bool SweepFolder::has_statistics(const std::string& label) const {
  return stored_ ? stored_->has_statistics(label)
                 : DataRoot(statistics(label), kStatisticsRun).finished();
}

void SweepFolder::remove_leftover_parts(const SweepRun& run) const {
  if (stored_) return;  // stores have no partial runs
  if (run.data.empty() && captured(run)) DataRoot(capture(run.label)).remove_leftover_parts();
  if (run.statistics && measured(run))
    DataRoot(statistics(run.label), kStatisticsRun).remove_leftover_parts();
}

bool SweepFolder::analysed(const SweepConfig& config, const SweepRun& run) const {
  const auto exact = exact_analysis(config, run);
  return analysed(analysis(config, run), results(run.label)) &&
         (!exact || analysed(*exact, exact_results(run.label)));
}

bool SweepFolder::analysed(const AnalyzeOptions& options, const std::string& folder) const {
  const Json summary = load_or_null(folder + "/summary.json");
  const Json wanted = {{"model", options.label},
                       {"capture_hash", capture_hash(options.data_root)},
                       {"options", options_json(options)},
                       {"versions", {{"qkscope", version_string()}}}};
  try {
    for (const auto& [key, value] : wanted.items())
      if (summary.at(key) != value) return false;
    return summary.at("counts").at("failed") == 0;
  } catch (const Json::exception&) {
    return false;
  }
}

bool SweepFolder::finished(const SweepConfig& config, const SweepRun& run) const {
  if (!path_exists(results(run.label) + "/summary.json")) return false;
  if (stored_ && !stored_->has_run(run.label)) return false;
  if (stored_ && stored_->known_finished(run.label)) return true;
  try {
    const bool all = captured(run) && measured(run) && analysed(config, run);
    if (all && stored_) stored_->keep_finished(run.label);
    return all;
  } catch (const Error&) {
    return false;
  }
}

bool SweepFolder::published(const SweepRun& run) const {
  Json kept = load_or_null(published_file(run.label));
  if (!kept.is_object()) return false;
  kept.erase("address");
  return kept == publication(run, capture(run.label));
}

void SweepFolder::record_published(const SweepRun& run, const std::string& address) const {
  make_folders(path_ + "/published");
  Json kept = publication(run, capture(run.label));
  kept["address"] = address;
  write_file(published_file(run.label), kept.dump(2) + "\n");
}

std::string SweepFolder::branches_file(const std::string& repository) const {
  auto name = repository;
  if (const auto slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  return path_ + "/branches/" + name + ".json";
}

std::optional<std::vector<std::string>> SweepFolder::recorded_branches(
    const std::string& repository) const {
  const Json kept = load_or_null(branches_file(repository));
  if (!kept.is_array() || kept.empty()) return {};
  std::vector<std::string> names;
  for (const auto& name : kept) {
    if (!name.is_string()) return {};
    names.push_back(name);
  }
  return names;
}

bool SweepFolder::record_branches(const SweepConfig& config) const {
  bool anew = false;
  for (const auto& [repository, names] : config.listed) {
    if (recorded_branches(repository)) continue;
    make_folders(path_ + "/branches");
    write_file(branches_file(repository),
               Json(names).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
    anew = true;
  }
  return anew;
}

void SweepFolder::write_failure(const std::string& label, const Error& error) const {
  make_folders(results(label));
  mark_changed(label);
  write_file(
      failure_file(results(label)),
      Json{{"error", error.what()}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void SweepFolder::delete_failure(const std::string& label) const {
  if (std::filesystem::remove(failure_file(results(label)))) mark_changed(label);
}

std::optional<std::string> SweepFolder::read_failure(const std::string& label) const {
  const Json failed = load_or_null(failure_file(results(label)));
  if (!failed.is_object()) return {};
  return failed.value("error", "");
}

std::vector<RunEntry> SweepFolder::entries(const SweepConfig& config) const {
  std::vector<RunEntry> all;
  for (const auto& run : config.runs) {
    RunEntry entry{.label = run.label, .phase = run.phase, .order = run.order, .error = ""};
    if (const auto failed = read_failure(run.label)) {
      entry.state = RunState::failed;
      entry.error = *failed;
    } else if (finished(config, run)) {
      entry.state = RunState::done;
    }
    all.push_back(std::move(entry));
  }
  return all;
}

void SweepFolder::write_runs(const SweepConfig& config) const {
  const auto all = entries(config);
  Json runs = Json::array();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& entry = all[i];
    const auto& source = config.runs[i];
    Json run = {{"label", entry.label},
                {"phase", entry.phase},
                {"order", entry.order},
                {"state", to_string(entry.state)},
                {"results", "runs/" + entry.label},
                {"capture", !source.data.empty() ? short_name(source.data)
                            : source.captures    ? "captures/" + entry.label
                                                 : "statistics/" + entry.label}};
    if (source.data.empty()) run["config"] = shown_config(source.capture);
    if (source.statistics) run["statistics"] = "statistics/" + entry.label;
    if (!source.family.empty()) run["family"] = source.family;
    if (!entry.error.empty()) run["error"] = entry.error;
    if (const auto& target = config.runs[i].publish; target && published(config.runs[i]))
      run["published"] = target->repo + "@" + target->branch;
    runs.push_back(std::move(run));
  }
  write_file(runs_file(), Json{{"name", config.name}, {"runs", runs}}.dump(
                              2, ' ', false, Json::error_handler_t::replace) +
                              "\n");
}

SweepIndex read_sweep_index(const SweepFolder& folder) {
  const auto file = folder.runs_file();
  if (!path_exists(file))
    bad_input("{}: there is no runs.json; expected the folder of a sweep (RESULTS/NAME)",
              folder.path());
  const Json json = load_json(file);
  if (!json.is_object() || !json.value("runs", Json()).is_array())
    bad_input("{}: expected an object with a list of runs", file);
  SweepIndex index;
  index.name = json.value("name", "");
  for (const auto& run : json["runs"]) index.runs.push_back(entry_from(run, file));
  return index;
}

void remove_temporary_files(const std::string& folder) {
  if (!is_folder(folder)) return;
  for (const auto& name : names_in(folder))
    if (name.ends_with(".tmp")) std::filesystem::remove(folder + "/" + name);
}

}  // namespace qkscope
