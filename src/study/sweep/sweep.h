// Internal interface of a sweep: configuration file, selection of checkpoints among the branches of
// a repository, results folder, combined tables, and the captures and statistics of runs.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "base/yaml/yaml_config.h"
#include "capture/run/capture_plan.h"
#include "input/store/object_store.h"
#include "qkscope/analysis.h"
#include "qkscope/capture.h"
#include "qkscope/experimental/attribution.h"
#include "qkscope/experimental/study.h"
#include "qkscope/hub.h"
#include "qkscope/statistics.h"

namespace qkscope {

// Parses phase and step from a branch name: "stage1-step-40000", "lc-4k-to-32k-step-4000",
// "step1000", "stage2-step1000-tokens3B", "checkpoint-500", "iter_20". The label stays empty.
CheckpointBranch parse_branch_name(const std::string& name);

// Natural sort order: digits inside names compare as numbers.
bool less_in_natural_order(const std::string& a, const std::string& b);

// Abbreviates a step: "40K", "1.2M", "3.44M", "512".
std::string abbreviate_step(std::int64_t step);

// One item of the section `checkpoints` of a sweep file.
struct CheckpointFilter {
  std::string repository;          // "org/name"
  std::vector<std::string> names;  // branch names given by patterns; empty: the Hub lists them
  BranchChoice choice;
  std::string prefix;                        // prefix of labels
  std::string family;                        // model family for figures; "": from the model's name
  std::string config;                        // capture configuration instead of the base; "": base
  YAML::Node overrides;                      // overrides of every run; a map or null
  std::map<std::string, YAML::Node> phases;  // additional overrides by phase
};

// Reads one item of the section `checkpoints`. If above 0, `every` (every n-th checkpoint) and
// `log` (at most n per phase) replace the values of the file.
CheckpointFilter read_checkpoint_filter(YamlSection& section, std::int64_t every, std::int64_t log);

using BranchLister = std::function<std::vector<std::string>(const std::string& sweep,
                                                            const std::string& repository)>;

// Returns the selected branches; their labels include the prefix of the filter. Throws a bad-input
// error that starts with `where` if no branch matches or an override's phase is unknown.
std::vector<CheckpointBranch> select_branches(const CheckpointFilter& filter,
                                              const std::vector<std::string>& names,
                                              const std::string& where);

struct SweepRun {
  std::string label;        // also the folder name of the run
  std::string phase;        // training phase; may be empty
  std::string family = {};  // model family for figures; "": derived from the model's name
  std::int64_t order = 0;
  std::optional<PublishOptions> publish;         // where the capture is published
  CaptureConfig capture;                         // SweepFolder sets output.data_root
  bool captures = true;                          // false: the run only has statistics
  std::optional<StatisticsSettings> statistics;  // statistics over every token of the same texts
  // Path or REPO@BRANCH of an existing capture ("": the run makes its own), and metadata that the
  // existing capture lacks.
  std::string data;
  std::string model;
  std::optional<HeadCounts> head_counts;
  std::vector<int> nope_layers;
};

std::pair<std::string, std::string> checkpoint_name_and_revision(const SweepRun& run);

// Returns the configuration of the run's statistics, with `data_root` as output folder.
StatsConfig stats_config_of_run(const SweepRun& run, const std::string& data_root);

// Section `composition` of a sweep file: heads, texts and options for composition() of each run.
struct HeadCompositionConfig {
  std::string heads;           // as in `qkscope attribute --head`
  CompositionOptions options;  // without heads and label
  std::int64_t texts = 100;
  std::int64_t max_tokens = 1024;  // longer texts are truncated
};

struct SweepConfig {
  std::string name;
  std::vector<SweepRun> runs;  // sorted by order
  AnalyzeOptions analysis;     // common options; data_root and label are set per run
  std::optional<HeadCompositionConfig> composition = {};
  ComputeOptions compute;  // dtype is also stored in the configuration of each run
  SlurmOptions slurm = {};
  // Branch names by repository, for repositories whose branches are listed by the Hub.
  std::map<std::string, std::vector<std::string>> listed;
};

// Reads the section `analysis`. Its keys are the options of `qkscope analyze`, except options that
// describe a capture (they are keys of the entries of `runs`) and options for statistics.
AnalyzeOptions read_analysis_options(YamlSection section);

HeadCompositionConfig read_composition_config(YamlSection section);

// Reads the `compute` section (options of `qkscope capture`). The command line takes precedence.
ComputeOptions read_compute_options(YamlSection section, const ComputeOptions& command_line);

std::vector<std::string> list_hub_branches(const std::string& sweep, const std::string& repository);

// Reads a sweep file. Throws a bad-input error with file, line and expected value.
SweepConfig read_sweep_config(const SweepSource& source,
                              const BranchLister& list = list_hub_branches);

// The folder of a sweep: all state of its runs is on disk, so several processes can share it.
//
//   RESULTS/NAME/captures/LABEL/...        one capture per run
//   RESULTS/NAME/statistics/LABEL/...      statistics over every token, if requested
//   RESULTS/NAME/runs/LABEL/...            analysis of the run; failure.json after a failure
//   RESULTS/NAME/runs/LABEL/exact/...      analysis of the statistics, if the run has both
//   RESULTS/NAME/published/LABEL.json      where the capture was published
//   RESULTS/NAME/branches/ORG--NAME.json   branches that checkpoints were selected from
//   RESULTS/NAME/runs.json                 list of runs
//   RESULTS/NAME/{qk,taxonomy,...}.{csv,parquet}   tables of all finished runs
//   RESULTS/NAME/.locks/...
//
// If RESULTS is an address of an object store, the sweep works in a local folder with this layout,
// without captures and statistics. The layout in the store:
//
//   ADDRESS/captures/LABEL, ADDRESS/statistics/LABEL   written by capture and statistics runs
//   ADDRESS/runs/LABEL   stored folder: the results of a run, or the reason of its failure
//   ADDRESS              stored folder: tables, list of runs, figures. Its manifest also lists the
//                        files of runs/, which are not uploaded twice
//
// The hidden file `.stored` in the local folder, and in each runs/LABEL, contains the hash of the
// manifest that was last downloaded or uploaded.
class SweepFolder {
 public:
  explicit SweepFolder(const std::string& path) : path_(path), path_or_uri_(path) {}
  // Opens the folder of a sweep; `results` is a path or an address of an object store.
  static SweepFolder open(const std::string& results, const std::string& name);

  const std::string& path() const { return path_; }                // local folder
  const std::string& path_or_uri() const { return path_or_uri_; }  // of the sweep
  bool is_in_store() const { return store_ != nullptr; }
  // Return the path of a folder, or its address if the sweep is in an object store.
  std::string capture_location(const std::string& label) const {
    return path_or_uri() + "/captures/" + label;
  }
  std::string statistics_location(const std::string& label) const {
    return path_or_uri() + "/statistics/" + label;
  }
  std::string results_folder(const std::string& label) const { return path_ + "/runs/" + label; }
  std::string statistics_results_folder(const std::string& label) const {
    return results_folder(label) + "/exact";
  }
  std::string runs_file() const { return path_ + "/runs.json"; }

  void create_folders() const;
  // Tries to lock a run. The returned lock is not held if another process has locked the run.
  FileLock lock_run(const std::string& label) const {
    return {path_ + "/.locks/" + label + ".run", FileLock::LockMode::exclusive,
            FileLock::Blocking::no};
  }
  // Locks the files of the whole sweep; blocks until the lock is free.
  FileLock lock_tables() const {
    return {path_ + "/.locks/tables", FileLock::LockMode::exclusive, FileLock::Blocking::yes};
  }

  // Downloads and uploads do nothing for a local sweep. Transfers of a run require the run's lock.

  // Downloads files that other machines uploaded, except for runs locked by another local process.
  void download_sweep_and_runs(const SweepConfig& config) const;
  void download_sweep_and_runs_locked(const SweepConfig& config) const;  // under lock_tables()
  // Downloads the files of the whole sweep if another machine has uploaded newer ones.
  void download_sweep_files() const;
  // Downloads the results of a run if the store has newer ones, and returns true in that case.
  bool download_run(const std::string& label) const;
  // Uploads new results of a run. If another machine uploads first, downloads its results.
  void upload_run(const std::string& label, bool quiet) const;
  // Deletes the local copies of capture and statistics that an analysis downloaded.
  void delete_downloads(const std::string& label) const;
  // Uploads the files of the whole sweep; the caller holds the lock of the tables. Returns false if
  // another machine has uploaded files since the last download: the tables must be rebuilt.
  bool upload_sweep_files(const SweepConfig& config, bool quiet) const;
  // Records that the local results differ from those in the store.
  void mark_run_changed(const std::string& label) const;

  AnalyzeOptions analysis_options_of_run(const SweepConfig& config, const SweepRun& run) const;
  // Returns options to analyse the statistics of a run that also has a capture, nullopt otherwise.
  std::optional<AnalyzeOptions> statistics_analysis_options(const SweepConfig& config,
                                                            const SweepRun& run) const;
  // Returns true if the capture is complete or not needed. Throws for a damaged state file.
  bool has_complete_capture(const SweepRun& run) const;
  // Returns true if the statistics of this configuration are complete or not requested.
  bool has_complete_statistics(const SweepRun& run) const;
  bool has_complete_data(const SweepRun& run) const {
    return has_complete_capture(run) && has_complete_statistics(run);
  }
  // Returns true if there are finished statistics of any configuration.
  bool has_any_statistics(const std::string& label) const;
  // Removes partial data that killed processes left behind after a capture or statistics finished.
  void remove_leftover_parts(const SweepRun& run) const;
  // Returns true if all analyses of the run used these options, this version and this capture.
  bool has_current_analysis(const SweepConfig& config, const SweepRun& run) const;
  // Returns true if the run is captured, analysed and uploaded, and not damaged.
  bool is_run_finished(const SweepConfig& config, const SweepRun& run) const;

  // Returns true if the current capture was published to the run's target.
  bool is_capture_published(const SweepRun& run) const;
  void record_publication(const SweepRun& run, const std::string& address) const;

  // Returns the branches of a repository at the start of the sweep, or nullopt if not recorded.
  std::optional<std::vector<std::string>> recorded_branches(const std::string& repository) const;
  // Records the branches of each repository without a record. Returns true if it wrote any record.
  bool record_branches(const SweepConfig& config) const;

  void write_failure_file(const std::string& label, const Error& error) const;
  void delete_failure_file(const std::string& label) const;
  std::optional<std::string> read_failure_file(const std::string& label) const;

  // Returns the state of each run, determined from the files on disk.
  std::vector<RunEntry> read_run_entries(const SweepConfig& config) const;
  void write_runs_file(const SweepConfig& config) const;

 private:
  // Shared by copies of the object.
  struct StoredSweepState {
    StoreUri address;
    std::mutex mutex = {};
    std::map<std::string, std::string> versions = {};  // label -> hash of the newest manifest
    std::set<std::string> finished = {};               // labels; saves requests to the store
  };

  void download_sweep_files_locked() const;
  bool is_run_uploaded(const std::string& label) const;
  // Records the manifest hash of a run's stored results. Returns the previous one, or "" if none.
  std::string record_run_version(const std::string& label, const std::string& hash) const;
  StoreUri run_uri(const std::string& label) const {
    return store_->address.child("runs/" + label);
  }
  std::string branches_file(const std::string& repository) const;
  std::string failure_file(const std::string& label) const {
    return results_folder(label) + "/failure.json";
  }
  std::string publication_record_file(const std::string& label) const {
    return path_ + "/published/" + label + ".json";
  }

  std::string path_;
  std::string path_or_uri_;
  std::shared_ptr<StoredSweepState> store_;  // null for a local sweep
};

// Content of runs.json.
struct SweepIndex {
  std::string name;
  std::vector<RunEntry> runs;
};
SweepIndex read_sweep_index(const SweepFolder& folder);

struct Sweep::State {
  SweepConfig config;
  SweepFolder folder;
};

// Returns the runs that the options select. Throws a bad-input error for an unknown label.
std::vector<const SweepRun*> select_runs(const SweepConfig& config, const SweepOptions& options);

// Writes runs.json and the combined tables of the finished runs, and uploads them for a sweep in a
// store. NAME.parquet has one row group per run and begins with the columns model, phase and order;
// NAME.csv is written if some run has one.
void write_combined_tables(const SweepFolder& folder, const SweepConfig& config, bool quiet);

// Returns the overview of the finished runs: one row for all layers, then one for each kind of
// layer where a run has several (rope, nope, full, sliding).
std::vector<OverviewRow> make_overview_rows(const SweepFolder& folder,
                                            const std::vector<RunEntry>& runs);

// Returns the overview row of one results folder, over all layers.
OverviewRow make_overview_row(const std::string& folder, const std::string& label);

// Returns the content of overview.csv. Columns from statistics exist only if some run has them.
Table make_overview_table(const SweepFolder& folder, const std::vector<RunEntry>& runs);

// Returns the content of sampling.csv: the error from sampling rows, by run and quantity. Includes
// only runs with both a capture and statistics over every token.
Table make_sampling_error_table(const SweepFolder& folder, const std::vector<RunEntry>& runs);

// Fetches the checkpoint and the texts of a run and writes composition.* and
// composition_components.* into its results folder. Throws a bad-input error if stopped.
void write_composition_scores(const SweepConfig& config, const SweepRun& run,
                              const std::string& results, const FetchOptions& fetch);
// Returns true if the results folder has composition tables made with these settings by this
// version of qkscope.
bool has_current_composition_scores(const HeadCompositionConfig& section,
                                    const std::string& results);

// Progress of a shard (a subset of a run's texts) that has journal entries.
struct ShardProgress {
  std::int64_t count = 1;  // number of shards of the run
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  bool complete = false;
  double began = 0;    // start time in seconds since 1970
  double written = 0;  // time of the last journal entry in seconds since 1970
};

using ShardProgressMap = std::map<std::int64_t, ShardProgress>;  // by index

// Return the unmerged shards of the run's capture or statistics that have the run's configuration.
ShardProgressMap read_capture_progress(const SweepFolder& folder, const SweepRun& run);
ShardProgressMap read_statistics_progress(const SweepFolder& folder, const SweepRun& run);

// Returns the number of shards with which the run was started; 0 if no unmerged shard exists.
std::int64_t started_shard_count(const SweepFolder& folder, const SweepRun& run);

// Computes captures and statistics, downloads their inputs from the Hub, and evicts weights after
// their last use. Runs are numbered by their position in `runs`, the execution order.
class RunDataProducer {
 public:
  RunDataProducer(const SweepConfig& config, const SweepFolder& folder, const SweepOptions& options,
                  std::vector<const SweepRun*> runs, bool quiet);

  // Computes one shard (options.texts) of the missing capture and statistics of run i.
  RunReport::Outcome compute_shard(std::size_t i);
  // Computes the missing capture and statistics of run i, and merges shards written by cluster
  // tasks. With SweepPart::merge, first waits until no task is writing shards of the run.
  RunReport::Outcome compute_capture_and_statistics(std::size_t i);
  // Records that run i no longer needs its weights. With options.evict, the weights of a checkpoint
  // are deleted from the Hub cache once all runs of the checkpoint are released. Thread-safe.
  void release_weights(std::size_t i);

 private:
  struct MissingRunData {
    bool capture = false;
    bool statistics = false;

    bool is_any_missing() const { return capture || statistics; }
  };

  MissingRunData find_missing_data(const SweepRun& run) const;
  bool compute_missing_data(const SweepRun& run, const MissingRunData& missing,
                            const Shard& texts) const;
  bool compute_missing_data_in_shards(std::size_t run_index, const MissingRunData& missing,
                                      std::int64_t shard_count);
  void fetch_inputs(std::size_t i);
  bool is_stop_requested() const { return options_.stop != nullptr && options_.stop->load(); }

  const SweepConfig& config_;
  const SweepFolder& folder_;
  const SweepOptions& options_;
  std::vector<const SweepRun*> runs_;
  bool quiet_;
  std::mutex mutex_;
  std::vector<bool> released_;  // by run
  std::future<void> ahead_;     // the destructor waits for the download
};

}  // namespace qkscope
