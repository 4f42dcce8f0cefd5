// Internal interface of a sweep: state, combined tables, capture and statistics of its runs.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "qkscope/experimental/study.h"
#include "qkscope/hub.h"
#include "study/sweep/sweep_config.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {

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

// Returns the overview of one results folder, all layers.
OverviewRow make_overview_row(const std::string& folder, const std::string& label);

// Returns the content of overview.csv. Columns from statistics exist only if some run has them.
Table overview_table(const SweepFolder& folder, const std::vector<RunEntry>& runs);

// Returns the content of sampling.csv: the error from sampling rows, by run and quantity, of the
// runs that have both a capture and statistics over every token.
Table make_sampling_error_table(const SweepFolder& folder, const std::vector<RunEntry>& runs);

// Fetches the checkpoint and the texts of a run and writes composition.* and
// composition_components.* into its results folder. Throws a bad-input error if stopped.
void write_composition_scores(const SweepConfig& config, const SweepRun& run,
                              const std::string& results, const FetchOptions& fetch);
// Returns true if the results folder has these tables with these settings and this version.
bool has_up_to_date_composition_scores(const CompositionSection& section,
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

using ShardMap = std::map<std::int64_t, ShardProgress>;  // by index

// Return the unmerged shards of the run's capture or statistics that have the run's configuration.
ShardMap capture_shard_progress(const SweepFolder& folder, const SweepRun& run);
ShardMap statistics_shard_progress(const SweepFolder& folder, const SweepRun& run);

// Returns the number of shards with which the run was started; 0 if no unmerged shard exists.
std::int64_t started_shard_count(const SweepFolder& folder, const SweepRun& run);

// Computes captures and statistics, downloads their inputs from the Hub, and evicts weights after
// their last use. Runs are numbered by their position in `runs`, the execution order.
class RunDataProducer {
 public:
  RunDataProducer(const SweepConfig& config, const SweepFolder& folder, const SweepOptions& options,
                  std::vector<const SweepRun*> runs, bool quiet);

  // Computes one shard (options.texts) of the missing capture and statistics of run i.
  RunReport::Outcome produce_shard(std::size_t i);
  // Computes the missing capture and statistics of run i, and merges shards written by cluster
  // tasks. With SweepPart::merge, first waits until no task is writing shards of the run.
  RunReport::Outcome compute_capture_and_statistics(std::size_t i);
  // Marks run i as finished with its weights. With options.evict, the weights of a checkpoint are
  // deleted from the Hub cache when all runs of the checkpoint are released. Thread-safe.
  void release_weights(std::size_t i);

 private:
  struct MissingRunData {
    bool capture = false;
    bool statistics = false;

    bool has_any() const { return capture || statistics; }
  };

  MissingRunData find_missing_data(const SweepRun& run) const;
  bool produce_missing_data(const SweepRun& run, const MissingRunData& missing,
                            const Shard& texts) const;
  bool produce_missing_data_in_shards(std::size_t i, const MissingRunData& missing,
                                      std::int64_t count);
  void wait_for_tasks(const std::string& data_root) const;
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
