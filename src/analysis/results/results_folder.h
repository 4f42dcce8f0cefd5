// A results folder is complete if it has summary.json, which is written last and lists tables.
#pragma once

#include <string>

namespace qkscope {

namespace results_layout {
inline constexpr char kSummaryFile[] = "summary.json";
inline constexpr char kLockFile[] = ".analyze.lock";  // exists while tables are written
}  // namespace results_layout

// Throws a bad-input error if an analysis of this folder has not finished, if a table is missing,
// or if the size of a table differs from summary.json. Accepts tables of other programs.
void check_results_complete(const std::string& folder);

}  // namespace qkscope
