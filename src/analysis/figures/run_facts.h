// Runs, and what runs.json and the files beside their results say of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/io/json.h"

namespace qkscope {

struct Run {
  std::string label;  // the model column
  std::string phase;  // empty for a single analysis
  std::int64_t order = 0;
  std::string title;   // the label as figures show it
  std::string family;  // of models: the sweep's own word, else from the model's name
  double high = 0.7;   // the taxonomy's bounds, as the run was analysed
  double low = 0.3;
  Json facts;  // its entry in runs.json, with summary.json and timings.json of its results
};

struct RunFacts {
  std::string name;          // of the sweep; empty where it has none
  std::vector<Json> others;  // entries of runs.json that are none of the runs
};

// Fills what is beside label, phase and order. `folder` holds the results of one run or of a sweep.
RunFacts read_run_facts(const std::string& folder, std::vector<Run>& runs);

}  // namespace qkscope
