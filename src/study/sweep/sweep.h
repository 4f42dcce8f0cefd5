// Internal interface of the sweep: its state, planning, running and tables.
#pragma once

#include <string>
#include <vector>

#include "qkscope/experimental/study.h"
#include "study/sweep/sweep_config.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {

struct Sweep::State {
  SweepConfig config;
  SweepFolder folder;
  std::string place;  // RESULTS/NAME: a path or an address of an object store
};

// Returns the runs that the options select. Throws bad input for an unknown label.
std::vector<const SweepRun*> chosen_runs(const SweepConfig& config, const SweepOptions& options);

// Estimates the work of the chosen runs from file sizes and text lengths. Downloads small files but
// no weights.
std::vector<PlannedRun> plan_sweep(const SweepConfig& config, const SweepFolder& folder,
                                   const SweepOptions& options);

// Captures and analyses the chosen runs that are not finished; a failed run does not stop the
// others. Returns one report per chosen run. Writes runs.json and the combined tables at the end.
std::vector<RunReport> run_sweep(const SweepConfig& config, const SweepFolder& folder,
                                 const SweepOptions& options);

// Concatenates NAME.parquet of all finished runs into NAME.parquet of the sweep, with one row group
// per run and the columns model, phase and order in front; also NAME.csv if a run has one. The
// caller holds the lock of the tables.
void combine_tables(const SweepFolder& folder, const SweepConfig& config);

// Writes runs.json and the tables of all finished runs, and uploads them for a sweep in a store.
void make_tables(const SweepFolder& folder, const SweepConfig& config, bool quiet);

// Returns the overview of the finished runs: all layers, then RoPE and NoPE layers of a run that
// has both.
std::vector<OverviewRow> overview_of(const SweepFolder& folder, const std::vector<RunEntry>& runs);

// Returns the overview of one results folder, all layers.
OverviewRow overview_of_results(const std::string& folder, const std::string& label);

// Returns sampling.csv: the error of sampling rows, per run and quantity, from runs that have both
// a capture and statistics over every token.
Table sampling_table(const SweepFolder& folder, const std::vector<RunEntry>& runs);

}  // namespace qkscope
