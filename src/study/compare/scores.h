// Scores of models from elsewhere: benchmarks.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace qkscope {

struct Score {
  std::string name;                      // "LongBench-Pro / non-thinking / all / Overall"
  std::map<std::string, double> models;  // by label
};

// A CSV file, long (columns metric and value) or with one column per score; `by` is the column with
// the names of the models.
std::vector<Score> read_scores(const std::string& file, const std::string& by);

}  // namespace qkscope
