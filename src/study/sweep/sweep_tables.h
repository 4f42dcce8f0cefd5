// The tables of a whole sweep: those of its finished runs one below the other, and the overview.
#pragma once

#include <vector>

#include "qkscope/experimental/study.h"
#include "study/sweep/sweep_config.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {

// NAME.parquet of every run becomes NAME.parquet of the sweep, and NAME.csv where the runs have
// one: first model, phase and order, then the run's own columns. One row group per run. The caller
// holds the lock of the tables.
void combine_tables(const SweepFolder& folder, const SweepConfig& config);

// runs.json and the tables of all runs that are finished by now, in the store too where the sweep
// has one.
void make_tables(const SweepFolder& folder, const SweepConfig& config, bool quiet);

// One row per finished run for all layers, then one for each kind of layer where a run has several:
// rope, nope, full, sliding.
std::vector<OverviewRow> overview_of(const SweepFolder& folder, const std::vector<RunEntry>& runs);

// Of the results of one analysis, all layers.
OverviewRow overview_of_results(const std::string& folder, const std::string& label);

}  // namespace qkscope
