// The folder of a sweep and the state of its runs. All state is on disk, so that several processes
// can share a sweep.
//
//   RESULTS/NAME/captures/LABEL/...        one capture per run
//   RESULTS/NAME/statistics/LABEL/...      statistics over every token, if requested
//   RESULTS/NAME/runs/LABEL/...            analysis of the run; failure.json after a failure
//   RESULTS/NAME/runs/LABEL/exact/...      analysis of the statistics of a run that has a capture
//   too RESULTS/NAME/published/LABEL.json      where the capture was published
//   RESULTS/NAME/branches/ORG--NAME.json   branches that checkpoints were selected from
//   RESULTS/NAME/runs.json                 list of runs
//   RESULTS/NAME/{qk,taxonomy,...}.{csv,parquet}   tables of all finished runs
//   RESULTS/NAME/.locks/...
//
// If RESULTS is an address of an object store, everything but captures and statistics is mirrored
// in a local folder; stored_sweep.h describes the layout in the store.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "qkscope/experimental/study.h"
#include "study/sweep/stored_sweep.h"
#include "study/sweep/sweep_config.h"

namespace qkscope {

class SweepFolder {
 public:
  explicit SweepFolder(std::string path) : path_(std::move(path)) {}
  // Opens the folder of a sweep; `results` is a path or an address of an object store.
  static SweepFolder of(const std::string& results, const std::string& name);

  const std::string& path() const { return path_; }  // local folder
  // Path or address of the results.
  std::string place() const { return stored_ ? stored_->address() : path_; }
  bool in_store() const { return stored_ != nullptr; }
  // Paths, or addresses for a sweep in an object store.
  std::string capture(const std::string& label) const;
  std::string statistics(const std::string& label) const;
  std::string results(const std::string& label) const { return path_ + "/runs/" + label; }
  std::string exact_results(const std::string& label) const { return results(label) + "/exact"; }
  std::string runs_file() const { return path_ + "/runs.json"; }

  void make() const;
  // Tries to lock a run; the lock is not held if another process has the run.
  FileLock lock_run(const std::string& label) const;
  // Locks the files of the whole sweep; blocks until the lock is free.
  FileLock lock_tables() const;

  // Downloads what other machines have uploaded; does nothing for a local sweep. Runs that another
  // local process has locked are skipped.
  void download(const SweepConfig& config) const;
  // Same as download(); the caller holds the lock of the tables.
  void download_locked(const SweepConfig& config) const;
  // Downloads only the files of the whole sweep.
  void download_files() const;
  // Downloads the results of one run; the caller holds its lock. Returns true if they were newer.
  bool download_run(const std::string& label) const {
    return stored_ && stored_->download_run(label);
  }
  // Uploads the results of a run; the caller holds its lock.
  void upload_run(const std::string& label, bool quiet) const;
  // Deletes the local copies of data that the analysis of a run downloaded from the store.
  void delete_downloads(const std::string& label) const;
  // Uploads the files of the whole sweep; the caller holds the lock of the tables. Returns false if
  // another machine has uploaded in between: download and make the tables again.
  bool upload(const SweepConfig& config, bool quiet) const;
  // Marks the local results of a run as different from those in the store.
  void mark_changed(const std::string& label) const;

  // Returns the options for the analysis of a run.
  AnalyzeOptions analysis(const SweepConfig& config, const SweepRun& run) const;
  // Returns the options for the analysis of the statistics of a run that also has a capture.
  std::optional<AnalyzeOptions> exact_analysis(const SweepConfig& config,
                                               const SweepRun& run) const;
  // Returns true if the capture is complete or the run needs none. Throws bad input for a damaged
  // state file.
  bool captured(const SweepRun& run) const;
  // Returns true if the statistics of this configuration are complete or not requested.
  bool measured(const SweepRun& run) const;
  // Returns true if there are finished statistics of any configuration.
  bool has_statistics(const std::string& label) const;
  // Removes parts that killed processes left beside finished captures and statistics.
  void remove_leftover_parts(const SweepRun& run) const;
  // Returns true if `results` was made with these options, this version and the present capture.
  bool analysed(const AnalyzeOptions& options, const std::string& results) const;
  // Returns true if all analyses of the run are up to date.
  bool analysed(const SweepConfig& config, const SweepRun& run) const;
  // Returns true if the run is captured, analysed and uploaded. Damaged results count as
  // unfinished.
  bool finished(const SweepConfig& config, const SweepRun& run) const;

  // Returns true if the present capture was published to the run's target.
  bool published(const SweepRun& run) const;
  void record_published(const SweepRun& run, const std::string& address) const;

  // Returns the branches of a repository at the start of the sweep, or nullopt if not recorded.
  std::optional<std::vector<std::string>> recorded_branches(const std::string& repository) const;
  // Records the branches. Returns true if a repository was new.
  bool record_branches(const SweepConfig& config) const;

  void write_failure(const std::string& label, const Error& error) const;
  void delete_failure(const std::string& label) const;
  std::optional<std::string> read_failure(const std::string& label) const;

  // Returns the state of each run from the disk.
  std::vector<RunEntry> entries(const SweepConfig& config) const;
  void write_runs(const SweepConfig& config) const;

 private:
  std::string branches_file(const std::string& repository) const;
  std::string published_file(const std::string& label) const {
    return path_ + "/published/" + label + ".json";
  }

  std::string path_;
  std::shared_ptr<StoredSweep> stored_;  // null for a local sweep
};

// Content of runs.json.
struct SweepIndex {
  std::string name;
  std::vector<RunEntry> runs;
};
SweepIndex read_sweep_index(const SweepFolder& folder);

// Removes *.tmp files that a killed process left behind.
void remove_temporary_files(const std::string& folder);

}  // namespace qkscope
