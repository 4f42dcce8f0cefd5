#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "analysis/results/results_folder.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "capture/format/capture_source.h"
#include "capture/format/data_root.h"
#include "capture/format/metadata.h"
#include "capture/stats_run/stats_plan.h"
#include "capture/stats_run/stats_run.h"
#include "input/hub/client.h"
#include "input/store/stored_folder.h"
#include "qkscope/version.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

// Identifies a publication: endpoint, repository, branch and content.
Json publication_record(const SweepRun& run, const std::string& data_root) {
  return {{"endpoint", hub_settings().endpoint.to_string()},
          {"repo", run.publish->repo},
          {"branch", run.publish->branch},
          {"capture_hash", fingerprint_capture(data_root)}};
}

// Returns null for a missing or damaged file: the step that writes the file then runs again.
Json load_json_or_null(const std::string& path) {
  if (!path_exists(path)) return {};
  return value_or_on_bad_input([&] { return load_json(path); }, Json());
}

// Returns true if a folder or address holds a finished run with this effective configuration.
bool has_finished_run(const std::string& place, const RunKind& kind, const Json& effective) {
  const auto address = parse_store_uri(place);
  if (!address) return DataRoot(place, kind).is_finished_with_config(effective);
  const StoredFolder stored(*address);
  if (!stored.is_published() || !stored.manifest().find_file(kind.state_file)) return false;
  stored.fetch_files({kind.state_file}, true);
  return DataRoot(stored.local_folder(), kind).is_finished_with_config(effective);
}

// Returns true if the results were made with these options, this version and the current capture.
bool has_current_results(const AnalyzeOptions& options, const std::string& results) {
  const Json summary = load_json_or_null(results + "/summary.json");
  const Json wanted = {{"model", options.label},
                       {"capture_hash", fingerprint_capture(options.data_root)},
                       {"options", analyze_options_to_json(options)},
                       {"versions", {{"qkscope", version_string()}}}};
  try {
    for (const auto& [key, value] : wanted.items())
      if (summary.at(key) != value) return false;
    return summary.at("counts").at("failed") == 0;
  } catch (const Json::exception&) {
    return false;
  }
}

namespace fs = std::filesystem;

constexpr char kRuns[] = "runs/";
constexpr char kSweepKind[] = "sweep";
constexpr char kResultsKind[] = "results";

constexpr char kStoredHash[] = "/.stored";  // hash of the manifest that matches the local folder

std::string read_stored_hash(const std::string& folder) {
  const auto file = folder + kStoredHash;
  return path_exists(file) ? std::string(MappedFile(file).text()) : "";
}

void download_files_into(const StoredFolder& stored, const std::vector<std::string>& names,
                         const std::string& folder) {
  stored.fetch_files(names, true);
  for (const auto& name : names) {
    const auto to = fmt::format("{}/{}", folder, name);
    make_folders(parent_folder(to));
    fs::copy_file(fs::path(stored.local_folder()) / name, to, fs::copy_options::overwrite_existing);
  }
  write_file(folder + kStoredHash, stored.manifest_hash());
}

bool is_run_file(const std::string& name) {
  return name.starts_with(kRuns);
}

}  // namespace

std::string to_string(RunState state) {
  constexpr const char* kNames[] = {"pending", "done", "failed"};
  return kNames[static_cast<int>(state)];
}

SweepFolder SweepFolder::open(const std::string& results, const std::string& name) {
  const auto address = parse_store_uri(results);
  if (!address) return SweepFolder(results + "/" + name);
  const auto own = address->child(name);
  SweepFolder folder(scratch_folder_for_sweep(own));
  folder.path_or_uri_ = own.to_string();
  folder.store_.reset(new StoredSweepState{own});
  return folder;
}

void SweepFolder::create_folders() const {
  for (const auto* folder : {"/runs", "/.locks"}) make_folders(path_ + folder);
  if (!store_) make_folders(path_ + "/captures");
}

AnalyzeOptions SweepFolder::analysis_options_of_run(const SweepConfig& config,
                                                    const SweepRun& run) const {
  auto options = config.analysis;
  options.label = run.label;
  options.data_root = !run.data.empty() ? run.data
                      : run.captures    ? capture_location(run.label)
                                        : statistics_location(run.label);
  options.model = run.model;
  if (options.weights == "run") {  // take the weights of each run
    const auto& model = run.capture.model;
    options.weights = !run.data.empty() ? run.model
                      : model.revision  ? model.name + "@" + *model.revision
                                        : model.name;
  }
  options.head_counts = run.head_counts;
  options.nope_layers = run.nope_layers;
  return options;
}

std::optional<AnalyzeOptions> SweepFolder::statistics_analysis_options(const SweepConfig& config,
                                                                       const SweepRun& run) const {
  if (!run.captures || !run.statistics) return {};
  auto options = analysis_options_of_run(config, run);
  options.data_root = statistics_location(run.label);
  options.max_tokens = 0;  // statistics have no rows to sample from
  return options;
}

bool SweepFolder::has_complete_capture(const SweepRun& run) const {
  if (!run.data.empty() || !run.captures) return true;
  return has_finished_run(capture_location(run.label), kCaptureRun, effective_config(run.capture));
}

bool SweepFolder::has_complete_statistics(const SweepRun& run) const {
  if (!run.statistics) return true;
  const auto folder = statistics_location(run.label);
  return has_finished_run(folder, kStatisticsRun,
                          effective_stats_config(stats_config_of_run(run, folder)));
}

bool SweepFolder::has_any_statistics(const std::string& label) const {
  const auto address = parse_store_uri(statistics_location(label));
  return address ? StoredFolder(*address).is_published()
                 : DataRoot(statistics_location(label), kStatisticsRun).is_finished();
}

void SweepFolder::remove_leftover_parts(const SweepRun& run) const {
  if (store_) return;  // runs in a store leave no parts here
  if (run.data.empty() && has_complete_capture(run))
    DataRoot(capture_location(run.label)).remove_leftover_parts();
  if (run.statistics && has_complete_statistics(run))
    DataRoot(statistics_location(run.label), kStatisticsRun).remove_leftover_parts();
}

bool SweepFolder::has_current_analysis(const SweepConfig& config, const SweepRun& run) const {
  const auto exact = statistics_analysis_options(config, run);
  return has_current_results(analysis_options_of_run(config, run), results_folder(run.label)) &&
         (!exact || has_current_results(*exact, statistics_results_folder(run.label))) &&
         (!config.composition ||
          has_current_composition_scores(*config.composition, results_folder(run.label)));
}

bool SweepFolder::is_run_finished(const SweepConfig& config, const SweepRun& run) const {
  if (!path_exists(results_folder(run.label) + "/summary.json")) return false;
  if (store_) {
    if (!is_run_uploaded(run.label)) return false;
    const std::lock_guard lock(store_->mutex);
    if (store_->finished.contains(run.label)) return true;
  }
  const auto check = [&] {
    if (!has_complete_data(run) || !has_current_analysis(config, run)) return false;
    if (!store_) return true;
    const std::lock_guard lock(store_->mutex);
    store_->finished.insert(run.label);
    return true;
  };
  return value_or_on_bad_input(check, false);
}

bool SweepFolder::is_capture_published(const SweepRun& run) const {
  Json kept = load_json_or_null(publication_record_file(run.label));
  if (!kept.is_object()) return false;
  kept.erase("address");
  return kept == publication_record(run, capture_location(run.label));
}

void SweepFolder::record_publication(const SweepRun& run, const std::string& address) const {
  make_folders(path_ + "/published");
  Json kept = publication_record(run, capture_location(run.label));
  kept["address"] = address;
  write_json_file(publication_record_file(run.label), kept);
}

std::string SweepFolder::branches_file(const std::string& repository) const {
  auto name = repository;
  if (const auto slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  return path_ + "/branches/" + name + ".json";
}

std::optional<std::vector<std::string>> SweepFolder::recorded_branches(
    const std::string& repository) const {
  const Json kept = load_json_or_null(branches_file(repository));
  const auto is_text = [](const Json& name) { return name.is_string(); };
  if (!kept.is_array() || kept.empty() || !std::ranges::all_of(kept, is_text)) return {};
  return kept.get<std::vector<std::string>>();
}

bool SweepFolder::record_branches(const SweepConfig& config) const {
  bool anew = false;
  for (const auto& [repository, names] : config.listed) {
    if (recorded_branches(repository)) continue;
    make_folders(path_ + "/branches");
    write_json_file(branches_file(repository), names, 1);
    anew = true;
  }
  return anew;
}

void SweepFolder::write_failure_file(const std::string& label, const Error& error) const {
  make_folders(results_folder(label));
  mark_run_changed(label);
  write_json_file(failure_file(label), {{"error", error.what()}});
}

void SweepFolder::delete_failure_file(const std::string& label) const {
  if (std::filesystem::remove(failure_file(label))) mark_run_changed(label);
}

std::optional<std::string> SweepFolder::read_failure_file(const std::string& label) const {
  const Json failed = load_json_or_null(failure_file(label));
  if (!failed.is_object()) return {};
  return failed.value("error", "");
}

std::vector<RunEntry> SweepFolder::read_run_entries(const SweepConfig& config) const {
  std::vector<RunEntry> all;
  for (const auto& run : config.runs) {
    RunEntry entry{.label = run.label, .phase = run.phase, .order = run.order, .error = ""};
    if (const auto failed = read_failure_file(run.label)) {
      entry.state = RunState::failed;
      entry.error = *failed;
    } else if (is_run_finished(config, run)) {
      entry.state = RunState::done;
    }
    all.push_back(std::move(entry));
  }
  return all;
}

void SweepFolder::write_runs_file(const SweepConfig& config) const {
  const auto all = read_run_entries(config);
  Json runs = Json::array();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& entry = all[i];
    const auto& source = config.runs[i];
    Json run = {{"label", entry.label},
                {"phase", entry.phase},
                {"order", entry.order},
                {"state", to_string(entry.state)},
                {"results", "runs/" + entry.label},
                {"capture", !source.data.empty() ? id_or_base_name(source.data)
                            : source.captures    ? "captures/" + entry.label
                                                 : "statistics/" + entry.label}};
    if (source.data.empty()) {
      auto& settings = run["config"] = effective_config(source.capture);
      for (const auto* section : {"dataset", "model", "tokenizer"}) {
        auto& name = settings[section][section == std::string_view("dataset") ? "path" : "name"];
        if (const auto path = name.get<std::string>(); fs::path(path).is_absolute())
          name = id_or_base_name(path);
      }
    }
    if (source.statistics) run["statistics"] = "statistics/" + entry.label;
    if (!source.family.empty()) run["family"] = source.family;
    if (!entry.error.empty()) run["error"] = entry.error;
    if (const auto& target = source.publish; target && is_capture_published(source))
      run["published"] = target->repo + "@" + target->branch;
    runs.push_back(std::move(run));
  }
  write_json_file(runs_file(), {{"name", config.name}, {"runs", runs}});
}

SweepIndex read_sweep_index(const SweepFolder& folder) {
  const auto file = folder.runs_file();
  if (!path_exists(file))
    reject("{}: there is no runs.json; expected the folder of a sweep (RESULTS/NAME)",
           folder.path());
  const Json json = load_json(file);
  if (!json.is_object() || !json.value("runs", Json()).is_array())
    reject("{}: expected an object with a list of runs", file);
  SweepIndex index;
  index.name = json.value("name", "");
  try {
    for (const auto& run : json["runs"]) {
      auto& entry = index.runs.emplace_back();
      entry.label = run.at("label");
      entry.phase = run.at("phase");
      entry.order = run.at("order");
      for (const auto state : {RunState::done, RunState::failed})
        if (run.at("state").get<std::string>() == to_string(state)) entry.state = state;
      entry.error = run.value("error", "");
    }
  } catch (const Json::exception& error) {
    reject("{}: not a list of runs as a sweep writes it: {}", file, error.what());
  }
  return index;
}

void SweepFolder::delete_downloads(const std::string& label) const {
  if (!store_) return;
  for (const char* what : {"captures/", "statistics/"})
    fs::remove_all(scratch_folder_for_downloads(store_->address.child(what + label)));
}

void SweepFolder::download_sweep_files() const {
  if (!store_) return;
  create_folders();
  const auto lock = lock_tables();
  download_sweep_files_locked();
}

void SweepFolder::download_sweep_and_runs(const SweepConfig& config) const {
  if (!store_) return;
  create_folders();
  const auto lock = lock_tables();
  download_sweep_and_runs_locked(config);
}

void SweepFolder::download_sweep_and_runs_locked(const SweepConfig& config) const {
  if (!store_) return;
  download_sweep_files_locked();
  parallel_for(std::ssize(config.runs), [&](std::int64_t i) {
    const auto& label = config.runs[as_index(i)].label;
    if (const auto lock = lock_run(label); lock.is_held()) download_run(label);
  });
}

void SweepFolder::download_sweep_files_locked() const {
  const StoredFolder stored(store_->address);
  if (!stored.is_published()) {
    fs::remove(path_ + kStoredHash);
    return;
  }
  if (stored.manifest().kind != kSweepKind)
    reject("{}: what is there is of the kind '{}', not a sweep; choose another --out",
           store_->address.to_string(), stored.manifest().kind);
  if (stored.manifest_hash() == read_stored_hash(path_)) return;
  auto names = stored.file_names();
  std::erase_if(names, is_run_file);
  download_files_into(stored, names, path_);
}

bool SweepFolder::download_run(const std::string& label) const {
  if (!store_) return false;
  const auto folder = results_folder(label);
  const StoredFolder stored(run_uri(label));
  const auto recorded = record_run_version(label, stored.manifest_hash());
  const auto last = is_run_uploaded(label) ? read_stored_hash(folder) : recorded;
  if (!stored.is_published()) fs::remove(folder + kStoredHash);
  if (!stored.is_published() || stored.manifest_hash() == last) return false;
  fs::remove_all(folder);
  download_files_into(stored, stored.file_names(), folder);
  return true;
}

void SweepFolder::upload_run(const std::string& label, bool quiet) const {
  if (!store_ || is_run_uploaded(label)) return;
  const auto folder = results_folder(label);
  StoredFolder stored(run_uri(label));
  if (!stored.try_publish(
          {.folder = folder, .kind = kResultsKind, .run = make_timestamped_id(), .quiet = quiet})) {
    download_run(label);
    return;
  }
  write_file(folder + kStoredHash, stored.manifest_hash());
  record_run_version(label, stored.manifest_hash());
}

bool SweepFolder::is_run_uploaded(const std::string& label) const {
  return path_exists(results_folder(label) + kStoredHash);
}

void SweepFolder::mark_run_changed(const std::string& label) const {
  if (store_) fs::remove(results_folder(label) + kStoredHash);
}

bool SweepFolder::upload_sweep_files(const SweepConfig& config, bool quiet) const {
  if (!store_) return true;
  StoredFolder stored(store_->address);
  if (stored.manifest_hash() != read_stored_hash(path_)) return false;
  FolderUpload upload{.folder = path_,
                      .kind = kSweepKind,
                      .run = make_timestamped_id(),
                      .quiet = quiet,
                      .without = "runs",
                      .in_store = {}};
  for (const auto& file : stored.manifest().files) {
    const auto path = path_ + "/" + file.name;
    std::error_code none;
    if (!is_run_file(file.name) && fs::file_size(path, none) == file.content.bytes &&
        format_checksum(checksum_of(MappedFile(path).text())) == file.content.checksum)
      upload.in_store.push_back(file);
  }
  for (const SweepRun& of_sweep : config.runs) {
    const auto& label = of_sweep.label;
    if (!is_run_uploaded(label)) continue;
    const StoredFolder run(run_uri(label));
    if (run.manifest_hash() != read_stored_hash(results_folder(label))) return false;
    const auto prefix = kRuns + label + "/";
    for (const auto& file : run.manifest().files)
      upload.in_store.push_back({prefix + file.name, prefix + file.object, file.content});
  }
  if (!stored.try_publish(upload)) return false;
  write_file(path_ + kStoredHash, stored.manifest_hash());
  return true;
}

std::string SweepFolder::record_run_version(const std::string& label,
                                            const std::string& hash) const {
  const std::lock_guard lock(store_->mutex);
  auto before = std::exchange(store_->versions[label], hash);
  if (before != hash) store_->finished.erase(label);
  return before;
}

}  // namespace qkscope
