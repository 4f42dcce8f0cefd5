// summary.json of an analysis run, and the options that determine its results.
#pragma once

#include <string>

#include "base/io/json.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Returns the options that determine the results of an analysis, as stored in summary.json.
Json analyze_options_to_json(const AnalyzeOptions& options);

// Returns the content of summary.json: means over heads for each group of heads, counts, failed
// heads, and reasons for empty fields.
Json summary_json(const AnalysisRun& run, const UndefinedCounts& undefined,
                  const AnalyzeOptions& options);

// Deletes summary.json before tables change: a folder without summary.json counts as having no
// results.
void remove_summary_file(const std::string& folder);

}  // namespace qkscope
