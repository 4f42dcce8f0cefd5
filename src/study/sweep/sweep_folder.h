// The folder of a sweep, and how far its runs are: both are read off the disk, so that processes
// which share a sweep need nothing else to agree.
//
//   RESULTS/NAME/captures/LABEL/...        one capture each
//   RESULTS/NAME/statistics/LABEL/...      its statistics over every token, where asked for
//   RESULTS/NAME/runs/LABEL/...            its analysis; failure.json where the last try failed
//   RESULTS/NAME/runs/LABEL/exact/...      the analysis of its statistics beside that of a capture
//   RESULTS/NAME/published/LABEL.json      where its capture was published
//   RESULTS/NAME/branches/ORG--NAME.json   the branches that checkpoints were chosen from
//   RESULTS/NAME/runs.json                 the list of runs
//   RESULTS/NAME/{qk,taxonomy,...}.{csv,parquet}   the tables of all finished runs
//   RESULTS/NAME/.locks/...
//
// Where RESULTS is an address, all but captures and statistics lies in a folder of this machine,
// and in the store what study/stored_sweep.h says.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/core/error.h"
#include "base/io/file_lock.h"
#include "qkscope/experimental/study.h"
#include "study/sweep/stored_sweep.h"
#include "study/sweep/sweep_config.h"

namespace qkscope {

class SweepFolder {
 public:
  explicit SweepFolder(std::string path) : path_(std::move(path)) {}
  // `results` may be an address.
  static SweepFolder of(const std::string& results, const std::string& name);

  const std::string& path() const { return path_; }  // on this machine
  // Where the results are: the path, or an address.
  std::string place() const { return stored_ ? stored_->address() : path_; }
  bool in_store() const { return stored_ != nullptr; }
  // These may be addresses.
  std::string capture(const std::string& label) const;
  std::string statistics(const std::string& label) const;
  std::string results(const std::string& label) const { return path_ + "/runs/" + label; }
  std::string exact_results(const std::string& label) const { return results(label) + "/exact"; }
  std::string runs_file() const { return path_ + "/runs.json"; }

  void make() const;
  // Not held when another process has this run.
  FileLock lock_run(const std::string& label) const;
  // For the files of the whole sweep; waits until it is free.
  FileLock lock_tables() const;

  // What others put into the store since; a local folder has it anyway. Results of runs that
  // another process of this machine is at stay as they are.
  void bring(const SweepConfig& config) const;
  // The same with the lock of the tables.
  void bring_locked(const SweepConfig& config) const;
  // Only the files of the whole sweep.
  void bring_files() const;
  // The same of one run, with its lock. True where there were other results.
  bool bring_run(const std::string& label) const { return stored_ && stored_->bring_run(label); }
  // Puts the results of a run, with its lock.
  void put_run(const std::string& label, bool quiet) const;
  // What was fetched from the store for the analysis of a run leaves this machine.
  void forget_fetched(const std::string& label) const;
  // Puts the files of the whole sweep, with the lock of the tables. False where others put theirs
  // in between: those are to be brought, and the tables made again.
  bool put(const SweepConfig& config, bool quiet) const;
  // Results that are about to be written are not the store's.
  void changes_run(const std::string& label) const;

  // The options of a run's analysis.
  AnalyzeOptions analysis(const SweepConfig& config, const SweepRun& run) const;
  // The same of its statistics, where they stand beside a capture.
  std::optional<AnalyzeOptions> exact_analysis(const SweepConfig& config,
                                               const SweepRun& run) const;
  // A run with data always is, and one without a capture. A damaged state file is bad input.
  bool captured(const SweepRun& run) const;
  // Statistics of this configuration are there, or not asked for.
  bool measured(const SweepRun& run) const;
  // Whether finished statistics are there, of whatever configuration.
  bool has_statistics(const std::string& label) const;
  // What killed processes left beside finished captures and statistics.
  void remove_left_parts(const SweepRun& run) const;
  // With these options, this program, and of the capture that is there now: into these results.
  bool analysed(const AnalyzeOptions& options, const std::string& results) const;
  // Both analyses, where there are two.
  bool analysed(const SweepConfig& config, const SweepRun& run) const;
  // Both, and in the store where that is asked for; what is damaged is not finished.
  bool finished(const SweepConfig& config, const SweepRun& run) const;

  // The capture that is there now, at the run's target of the Hub in use.
  bool published(const SweepRun& run) const;
  void keep_published(const SweepRun& run, const std::string& address) const;

  // The branches of a repository when the sweep was begun; nothing where it was not.
  std::optional<std::vector<std::string>> kept_branches(const std::string& repository) const;
  // True where some are new.
  bool keep_branches(const SweepConfig& config) const;

  void keep_failure(const std::string& label, const Error& error) const;
  void forget_failure(const std::string& label) const;
  std::optional<std::string> kept_failure(const std::string& label) const;

  // What the disk says about each run of the sweep.
  std::vector<RunEntry> entries(const SweepConfig& config) const;
  void write_runs(const SweepConfig& config) const;

 private:
  std::string branches_file(const std::string& repository) const;
  std::string published_file(const std::string& label) const {
    return path_ + "/published/" + label + ".json";
  }

  std::string path_;
  std::shared_ptr<StoredSweep> stored_;  // none for a local folder
};

// runs.json of a sweep's folder.
struct SweepIndex {
  std::string name;
  std::vector<RunEntry> runs;
};
SweepIndex read_sweep_index(const SweepFolder& folder);

// Removes what a killed process left half written there.
void remove_strays(const std::string& folder);

}  // namespace qkscope
