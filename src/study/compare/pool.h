// Benchmark scores of models, for pool_results() of qkscope/experimental/study.h.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace qkscope {

struct BenchmarkScore {
  std::string name;                      // "LongBench-Pro / non-thinking / all / Overall"
  std::map<std::string, double> models;  // score by label
};

// Reads a CSV file of scores: long format (columns metric and value) or one column per score. The
// column `by` holds the labels of the models.
std::vector<BenchmarkScore> read_model_scores(const std::string& file, const std::string& by);

}  // namespace qkscope
