// The results folder of an analysis. summary.json is written last and lists the tables and the
// options that determine the results, so a folder with summary.json is complete.
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
// or if the size of a table differs from summary.json. Accepts tables written by other programs.
void check_results_complete(const std::string& folder);

// Returns the options that determine the results of an analysis, in the format of summary.json.
Json analyze_options_to_json(const AnalyzeOptions& options);

// Returns the analysis that an option (by its JSON key) belongs to, or "" if all analyses share it.
std::string analysis_of_option(const std::string& key);

// Returns the content of summary.json: means over heads for each group of heads, counts, failed
// heads, and reasons for empty fields.
Json summary_json(const AnalysisRun& run, const UndefinedCounts& undefined,
                  const AnalyzeOptions& options);

// Deletes summary.json before tables change, so that an interrupted run counts as no results.
void remove_summary_file(const std::string& folder);

}  // namespace qkscope
