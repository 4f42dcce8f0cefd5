// Measures over runs: the columns of a figure's CSV, one row per run, and how they are plotted.
#pragma once

#include <string>
#include <vector>

#include "figures/panels.h"
#include "figures/results.h"

namespace qkscope {

// A measure over runs. Middle and ends of its band are made of columns of the CSV ("$2 - $3").
struct Series {
  std::string title;  // gnuplot markup
  std::string colour;
  int point_type;
  std::string middle;
  std::string low;
  std::string high;
};

// Line with points and a band; a single run gets whiskers instead. `x` is column 1. Values are
// multiplied by `scale`.
std::string plot_series(const std::vector<Series>& series, std::size_t runs, double scale = 1);
// Points with whiskers, side by side, nothing between the runs.
std::string plot_whiskers(const std::vector<Series>& series, double scale = 1);

std::vector<KeyEntry> key_of(const std::vector<Series>& series);

// The CSV of a figure over runs: one row per run with summaries of measures over its heads.
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
