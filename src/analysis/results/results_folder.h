// A folder of analysis results is whole when summary.json, which is written last, lists its tables.
#pragma once

#include <string>

namespace qkscope {

namespace results_layout {
inline constexpr char kSummaryFile[] = "summary.json";
inline constexpr char kLockFile[] = ".analyze.lock";  // exists while tables are written
}  // namespace results_layout

// Throws a bad-input error when an analysis of this folder has not finished, or when a table is
// missing or has another size than summary.json says. Accepts tables of other programs.
void check_whole_results(const std::string& folder);

}  // namespace qkscope
