// The results folder of an analysis. summary.json is written last and lists the tables and the
// options that determine the results, so a folder with summary.json is complete. Also the list of
// columns of the table `geometry`, which tables, means, figures and reports share.
#pragma once

#include <string>
#include <vector>

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
std::string analysis_name_of_option(const std::string& key);

// Returns the content of summary.json: means by group of heads, counts, failures, empty fields.
Json summary_json(const AnalysisRun& run, const UndefinedCounts& undefined,
                  const AnalyzeOptions& options);

// Deletes summary.json before tables change: a folder without summary.json counts as incomplete.
void remove_summary_file(const std::string& folder);

// A column of the table `geometry`: one line of geometry_columns.txt, which describes the fields.
struct GeometryColumn {
  std::string name;
  std::string group;    // name of a GeometryColumnGroup
  std::string source;   // "moments", "rotary", "attention", "rows" or "weights"
  std::string scale;    // colours of the head map
  std::string meaning;  // one sentence, without a full stop
  bool has_error;       // a column NAME_se follows
  bool is_null;         // value of another column under a null model; no head map
};

const std::vector<GeometryColumn>& geometry_columns();

// A group of columns of the table `geometry`: one section of a report, headed by a question.
struct GeometryColumnGroup {
  std::string name;   // "rank"
  std::string title;  // a question
  std::string sentence;
};
const std::vector<GeometryColumnGroup>& geometry_column_groups();

std::string missing_geometry_reason(const GeometryColumn& column, const AnalysisRun& run,
                                    const HeadReport& head);

}  // namespace qkscope
