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
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/file_lock.h"
#include "qkscope/study.h"
#include "study/sweep_config.h"

namespace qkscope {

class SweepFolder {
 public:
  explicit SweepFolder(std::string path) : path_(std::move(path)) {}
  static SweepFolder of(const std::string& results, const SweepConfig& config);

  const std::string& path() const { return path_; }
  std::string capture(const std::string& label) const { return path_ + "/captures/" + label; }
  std::string statistics(const std::string& label) const { return path_ + "/statistics/" + label; }
  std::string results(const std::string& label) const { return path_ + "/runs/" + label; }
  std::string exact_results(const std::string& label) const { return results(label) + "/exact"; }
  std::string runs_file() const { return path_ + "/runs.json"; }

  void make() const;
  // Not held when another process has this run.
  FileLock lock_run(const std::string& label) const;
  // For the files of the whole sweep; waits until it is free.
  FileLock lock_tables() const;

  // The options of a run's analysis.
  AnalyzeOptions analysis(const SweepConfig& config, const SweepRun& run) const;
  // The same of its statistics, where they stand beside a capture.
  std::optional<AnalyzeOptions> exact_analysis(const SweepConfig& config,
                                               const SweepRun& run) const;
  // A run with data always is, and one without a capture. A damaged state file is bad input.
  bool captured(const SweepRun& run) const;
  // Statistics of this configuration are there, or not asked for.
  bool measured(const SweepRun& run) const;
  // With these options, this program, and of the capture that is there now: into these results.
  bool analysed(const AnalyzeOptions& options, const std::string& results) const;
  // Both analyses, where there are two.
  bool analysed(const SweepConfig& config, const SweepRun& run) const;
  // Both; what is damaged is not finished.
  bool finished(const SweepConfig& config, const SweepRun& run) const;

  // The capture that is there now, at the run's target of the Hub in use.
  bool published(const SweepRun& run) const;
  void keep_published(const SweepRun& run, const std::string& address) const;

  // The branches of a repository when the sweep was begun; nothing where it was not.
  std::optional<std::vector<std::string>> kept_branches(const std::string& repository) const;
  void keep_branches(const SweepConfig& config) const;

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
