// The summary of an analysis run (summary.json), and what tells two runs apart.
#pragma once

#include <string>

#include "base/io/json.h"
#include "qkscope/analysis.h"

namespace qkscope {

// What decides the numbers of an analysis besides the capture itself.
Json options_json(const AnalyzeOptions& options);

// Means over heads (all, RoPE and NoPE layers apart), counts, failed heads, reasons of empty
// fields.
Json summarise(const AnalysisRun& run, const ResultTables& results, const AnalyzeOptions& options);

// Before the tables in a folder change: without a summary they do not count as results.
void remove_summary(const std::string& folder);

}  // namespace qkscope
