// A run of a results folder: its label, its model family and the metadata stored beside its tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/json.h"

namespace qkscope {

struct Run {
  std::string label;  // value of the column "model"
  std::string phase;  // empty for a single analysis
  std::int64_t order = 0;
  std::string title;   // the label as figures show it, see display_label()
  std::string family;  // model family: from runs.json, else derived from the model's name
  double high = 0.7;   // taxonomy bounds of |r| that the run was analysed with
  double low = 0.3;
  Json facts;  // the run's entry in runs.json plus its summary.json and timings.json
};

struct SweepMetadata {
  std::string name;                     // sweep name; empty for a single analysis
  std::vector<Json> runs_without_rows;  // entries of runs.json that have no rows in any table
};

// Completes `runs`, whose label, phase and order are set, from runs.json, summary.json and
// timings.json in `folder`.
SweepMetadata read_run_metadata(const std::string& folder, std::vector<Run>& runs);

// Returns the label as figures show it: the last component of a path, the repository name of a
// folder in the Hub cache, any other label unchanged.
std::string display_label(const std::string& label);

// Returns the model family, for example "qwen3" for "Qwen/Qwen3-4B-Base": the last path component
// up to and including its first version number, in lower case. Parameter counts ("7b") and training
// steps ("1000") are not versions. Returns "" for names with fewer than three leading letters.
std::string family_of(std::string_view model);

// Returns true if two names denote the same model: their last path components are equal, ignoring
// case, '-' and '_'.
bool same_model(std::string_view x, std::string_view y);

}  // namespace qkscope
