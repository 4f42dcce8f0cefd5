// Internal interface of a sweep: its state and its combined tables.
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
};

// Returns the runs that the options select. Throws a bad-input error for an unknown label.
std::vector<const SweepRun*> select_runs(const SweepConfig& config, const SweepOptions& options);

// Writes runs.json and the combined tables of the finished runs, and uploads them for a sweep in a
// store. NAME.parquet has one row group per run, with the columns model, phase and order in front;
// NAME.csv exists if a run has one.
void write_combined_tables(const SweepFolder& folder, const SweepConfig& config, bool quiet);

// Returns the overview of the finished runs: one row for all layers, then one for each kind of
// layer where a run has several (rope, nope, full, sliding).
std::vector<OverviewRow> make_overview_rows(const SweepFolder& folder,
                                            const std::vector<RunEntry>& runs);

// Returns the overview of one results folder, all layers.
OverviewRow make_overview_row(const std::string& folder, const std::string& label);

// Returns the content of overview.csv. Columns of exact values exist only if some run has them.
Table overview_table(const SweepFolder& folder, const std::vector<RunEntry>& runs);

// Returns the content of sampling.csv: the error from sampling rows, by run and quantity, of the
// runs that have both a capture and statistics over every token.
Table sampling_table(const SweepFolder& folder, const std::vector<RunEntry>& runs);

}  // namespace qkscope
