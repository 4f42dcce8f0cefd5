// summary.json of an analysis run, and the options that decide its numbers.
#pragma once

#include <string>

#include "base/io/json.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Returns the options that decide the numbers of an analysis, as summary.json holds them.
Json options_json(const AnalyzeOptions& options);

// Returns the content of summary.json: means over heads for each group of heads, counts, failed
// heads, reasons of empty fields.
Json summarise(const AnalysisRun& run, const UndefinedCounts& undefined,
               const AnalyzeOptions& options);

// Deletes summary.json before tables change: a folder without one holds no results.
void remove_summary(const std::string& folder);

}  // namespace qkscope
