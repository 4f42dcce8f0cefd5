// The CSV of figures over runs: one row per run with summaries of measures over its heads.
#pragma once

#include <string>
#include <vector>

#include "figures/results.h"
#include "figures/series.h"

namespace qkscope {

class RunTable {
 public:
  explicit RunTable(const Results& results) : results_(results) {}

  // NAME_mean, NAME_std and NAME_heads; returns the place of NAME_mean.
  int add_mean(const std::string& name, const std::vector<std::vector<double>>& groups);
  // NAME_median, NAME_q25, NAME_q75, NAME_mean and NAME_heads; returns the place of NAME_median.
  int add_quartiles(const std::string& name, const std::vector<std::vector<double>>& groups);
  // One number per run.
  int add(const std::string& name, std::vector<double> values);

  // Mean with a band of one standard deviation, at the place add_mean returned.
  static Series mean_series(std::string title, std::string colour, int point_type, int place);
  // Median with a band between quartiles, at the place add_quartiles returned.
  static Series quartile_series(std::string title, std::string colour, int point_type, int place);

  // Empty when no number exists. The first column is the run's index, the last two its label and
  // phase.
  Table table() const;

 private:
  struct Column {
    std::string name;
    std::vector<double> values;  // (runs)
  };

  const Results& results_;
  std::vector<Column> columns_;
};

}  // namespace qkscope
