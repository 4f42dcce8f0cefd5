// The tables of the finished runs, one below the other, with the run in the first columns.
#pragma once

#include "study/sweep_config.h"
#include "study/sweep_folder.h"

namespace qkscope {

// NAME.parquet of every run becomes NAME.parquet of the sweep, and NAME.csv where the runs have
// one: first model, phase and order, then the run's own columns. One row group per run. The caller
// holds the lock of the tables.
void combine_tables(const SweepFolder& folder, const SweepConfig& config);

}  // namespace qkscope
