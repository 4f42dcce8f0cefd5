// The folder of a sweep and the state of its runs. All state is on disk, so that several processes
// can share a sweep.
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
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "input/store/store_address.h"
#include "qkscope/experimental/study.h"
#include "study/sweep/sweep_config.h"

namespace qkscope {

class SweepFolder {
 public:
  explicit SweepFolder(const std::string& path) : path_(path), location_(path) {}
  // Opens the folder of a sweep; `results` is a path or an address of an object store.
  static SweepFolder open(const std::string& results, const std::string& name);

  const std::string& path() const { return path_; }          // local folder
  const std::string& location() const { return location_; }  // path or address of the sweep
  bool is_in_store() const { return store_ != nullptr; }
  // Paths, or addresses for a sweep in an object store.
  std::string capture_location(const std::string& label) const {
    return location() + "/captures/" + label;
  }
  std::string statistics_location(const std::string& label) const {
    return location() + "/statistics/" + label;
  }
  std::string results_folder(const std::string& label) const { return path_ + "/runs/" + label; }
  std::string exact_results_folder(const std::string& label) const {
    return results_folder(label) + "/exact";
  }
  std::string runs_file() const { return path_ + "/runs.json"; }

  void create_folders() const;
  // Tries to lock a run. The returned lock is not held if another process has locked the run.
  FileLock lock_run(const std::string& label) const {
    return {path_ + "/.locks/" + label + ".run", FileLock::LockMode::exclusive,
            FileLock::LockWait::no};
  }
  // Locks the files of the whole sweep; blocks until the lock is free.
  FileLock lock_tables() const {
    return {path_ + "/.locks/tables", FileLock::LockMode::exclusive, FileLock::LockWait::yes};
  }

  // Downloads and uploads do nothing for a local sweep. Those of a run require the run's lock.

  // Downloads tables and results of other machines, except runs locked by another local process.
  void download_updates(const SweepConfig& config) const;
  // Same as download_updates(), for a caller that holds the lock of the tables.
  void download_updates_under_lock(const SweepConfig& config) const;
  // Downloads the files of the whole sweep if another machine has uploaded newer ones.
  void download_sweep_files() const;
  // Downloads the results of a run if the store has newer ones, and returns true in that case.
  bool download_run(const std::string& label) const;
  // Uploads the results of a run that the store does not have. If two machines upload at once, one
  // wins and the other downloads the winner's results.
  void upload_run(const std::string& label, bool quiet) const;
  // Deletes the local copies of capture and statistics that an analysis downloaded.
  void delete_downloads(const std::string& label) const;
  // Uploads the files of the whole sweep; the caller holds the lock of the tables. Returns false if
  // another machine has uploaded files since the last download: the tables must be rebuilt.
  bool upload_sweep_files(const SweepConfig& config, bool quiet) const;
  // Records that the local results differ from the store.
  void mark_run_changed(const std::string& label) const;

  AnalyzeOptions analysis_options_of_run(const SweepConfig& config, const SweepRun& run) const;
  // For a run with a capture and statistics, returns the options for analysing the statistics;
  // nullopt for any other run.
  std::optional<AnalyzeOptions> every_token_analysis_options(const SweepConfig& config,
                                                             const SweepRun& run) const;
  // Returns true if the capture is complete or not needed. Throws for a damaged state file.
  bool has_complete_capture(const SweepRun& run) const;
  // Returns true if the statistics of this configuration are complete or not requested.
  bool has_complete_statistics(const SweepRun& run) const;
  // Returns true if capture and statistics of the run are complete or not needed.
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
  bool is_finished(const SweepConfig& config, const SweepRun& run) const;

  // Returns true if the current capture was published to the run's target.
  bool is_published(const SweepRun& run) const;
  void record_published(const SweepRun& run, const std::string& address) const;

  // Returns the branches of a repository at the start of the sweep, or nullopt if not recorded.
  std::optional<std::vector<std::string>> recorded_branches(const std::string& repository) const;
  // Records branches of repositories not recorded yet. Returns true if there was such a repository.
  bool record_branches(const SweepConfig& config) const;

  void write_failure(const std::string& label, const Error& error) const;
  void delete_failure(const std::string& label) const;
  std::optional<std::string> read_failure(const std::string& label) const;

  // Returns the state of each run from the disk.
  std::vector<RunEntry> read_run_entries(const SweepConfig& config) const;
  void write_runs_file(const SweepConfig& config) const;

 private:
  // Shared by copies of the object.
  struct StoreState {
    StoreAddress address;
    std::mutex mutex = {};
    std::map<std::string, std::string> versions = {};  // label -> hash of the newest manifest
    std::set<std::string> finished = {};               // labels; saves requests to the store
  };

  void download_sweep_files_under_lock() const;
  bool is_run_in_store(const std::string& label) const;  // with the local results
  // Returns the version that was recorded before; "" if there was none.
  std::string record_run_version(const std::string& label, const std::string& hash) const;
  StoreAddress run_address(const std::string& label) const {
    return store_->address.child("runs/" + label);
  }
  std::string branches_file(const std::string& repository) const;
  std::string failure_file(const std::string& label) const {
    return results_folder(label) + "/failure.json";
  }
  std::string published_file(const std::string& label) const {
    return path_ + "/published/" + label + ".json";
  }

  std::string path_;
  std::string location_;
  std::shared_ptr<StoreState> store_;  // null for a local sweep
};

// Content of runs.json.
struct SweepIndex {
  std::string name;
  std::vector<RunEntry> runs;
};
SweepIndex read_sweep_index(const SweepFolder& folder);

}  // namespace qkscope
