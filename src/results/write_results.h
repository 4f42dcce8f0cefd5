// Writes the tables and the summary of an analysis run into a folder.
#pragma once

#include <string>

#include "core/json.h"
#include "results/tables.h"

namespace qkscope {

// Means over heads (all, RoPE and NoPE layers apart), counts, failed heads, reasons of empty
// fields.
Json summarise(const AnalysisRun& run, const ResultTables& results, const AnalyzeOptions& options);

// NAME.csv and NAME.parquet for each table, then summary.json. `started` is when the run began, for
// the timings: seconds of a steady clock.
void write_results(const std::string& folder, const AnalysisRun& run, const AnalyzeOptions& options,
                   double started);

double steady_seconds();

}  // namespace qkscope
