// Writes the tables and the summary of an analysis run into a folder.
#pragma once

#include <string>

#include "io/json.h"
#include "results/tables.h"

namespace qkscope {

// What decides the numbers of an analysis besides the capture itself.
Json options_json(const AnalyzeOptions& options);

// Tells captures apart: 16 hex digits over the state file, "" for a capture without one.
std::string capture_hash(const std::string& data_root);

// Means over heads (all, RoPE and NoPE layers apart), counts, failed heads, reasons of empty
// fields.
Json summarise(const AnalysisRun& run, const ResultTables& results, const AnalyzeOptions& options);

// NAME.csv and NAME.parquet for each table, then summary.json. `started` is when the run began, for
// the timings: seconds of a steady clock.
void write_results(const std::string& folder, const AnalysisRun& run, const AnalyzeOptions& options,
                   double started);

// Logs the heads that failed and throws, once everything is written, so that the exit code says so.
void report_failed_heads(const AnalysisRun& run, const std::string& folder);

double steady_seconds();

}  // namespace qkscope
