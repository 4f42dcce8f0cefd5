// Inputs of pool_results(): the heads of several analyses, and benchmark scores of models.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "study/compare/run_numbers.h"

namespace qkscope {

struct PooledHead {
  std::string model;  // label of the run
  std::string rope;   // "rope", "nope" or "unknown"
  std::int64_t layer = 0;
  std::int64_t head = 0;
  double depth = 0;                      // layer / last layer with a head of the run
  std::map<std::string, double> values;  // by quantity; missing values have no entry

  double value(const std::string& quantity) const;  // NaN if missing
};

// Returns every head of the runs with the quantities of its tables, sorted by run, layer and head.
std::vector<PooledHead> pooled_heads(const std::vector<RunFolder>& runs);

// Returns the names of all quantities of these heads, sorted.
std::vector<std::string> pooled_quantities(const std::vector<PooledHead>& heads);

struct Score {
  std::string name;                      // "LongBench-Pro / non-thinking / all / Overall"
  std::map<std::string, double> models;  // score by label
};

// Reads a CSV file of scores: long format (columns metric and value) or one column per score. The
// column `by` holds the labels of the models.
std::vector<Score> read_scores(const std::string& file, const std::string& by);

}  // namespace qkscope
