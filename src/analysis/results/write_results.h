// A results folder: summary.json, which is written last and lists the tables, and the options that
// determine the results. A folder is complete if it has summary.json.
#pragma once

#include <string>

#include "base/io/json.h"
#include "qkscope/analysis.h"

namespace qkscope {

namespace results_layout {
inline constexpr char kSummaryFile[] = "summary.json";
inline constexpr char kLockFile[] = ".analyze.lock";  // exists while tables are written
}  // namespace results_layout

// Throws a bad-input error if an analysis of this folder has not finished, if a table is missing,
// or if the size of a table differs from summary.json. Accepts tables of other programs.
void check_results_complete(const std::string& folder);

// Returns the options that determine the results of an analysis, as stored in summary.json.
Json analyze_options_to_json(const AnalyzeOptions& options);

// Returns the analysis that a key of these options belongs to; "" if all analyses share it.
std::string analysis_of_option(const std::string& key);

// Returns the content of summary.json: means over heads for each group of heads, counts, failed
// heads, and reasons for empty fields.
Json summary_json(const AnalysisRun& run, const UndefinedCounts& undefined,
                  const AnalyzeOptions& options);

// Deletes summary.json before tables change: a folder without it counts as having no results.
void remove_summary_file(const std::string& folder);

}  // namespace qkscope
