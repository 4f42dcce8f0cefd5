// Measures over runs: the columns of a figure's CSV, one row per run, and how they are plotted.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/panels.h"
#include "analysis/figures/results.h"

namespace qkscope {

// A measure over runs. Middle, the ends of its band and those of its bars are made of columns of
// the CSV ("$2 - $3").
struct Series {
  std::string title;  // gnuplot markup
  std::string colour;
  int point_type;
  std::string middle;
  std::string low;
  std::string high;
  std::string bar_low = "";  // 95 % interval of the mean; empty: not known
  std::string bar_high = "";
};

// Where the columns of a measure are in the CSV, counted from 1.
struct MeasureColumns {
  int first = 0;
  int interval = 0;  // NAME_low, before NAME_high; 0: there is none
};

// The name that errors.csv has for a mean, and the layers it is over.
struct ErrorName {
  std::string quantity = "";  // empty: not looked for
  std::string heads = "all";
};

// Line with points, a band and bars; a single run gets whiskers instead of the band. `x` is column
// 1. Values are multiplied by `scale`.
std::string plot_series(const std::vector<Series>& series, std::size_t runs, double scale = 1);
// Points with whiskers, side by side, nothing between the runs.
std::string plot_whiskers(const std::vector<Series>& series, double scale = 1);

// A dotted line over the column `place`: what unrelated positions would give.
std::string null_line(int place, const std::string& colour);
inline constexpr char kNullNote[] =
    "Dotted lines: mean |r| that positions without relation to the vectors would give.";
// `plot` with lines of null_line under it.
std::string with_lines(const std::string& plot, const std::string& lines);
std::vector<double> means_of(const std::vector<std::vector<double>>& groups);

std::vector<KeyEntry> key_of(const std::vector<Series>& series);

// The CSV of a figure over runs: one row per run with summaries of measures over its heads.
class RunTable {
 public:
  explicit RunTable(const Results& results) : results_(results) {}

  // NAME_mean, NAME_std and NAME_heads, and where the results have errors NAME_low and NAME_high.
  MeasureColumns add_mean(const std::string& name, const std::vector<std::vector<double>>& groups,
                          const ErrorName& error = {});
  // NAME_median, NAME_q25, NAME_q75, NAME_mean and NAME_heads, and likewise.
  MeasureColumns add_quartiles(const std::string& name,
                               const std::vector<std::vector<double>>& groups,
                               const ErrorName& error = {});
  // One number per run.
  int add(const std::string& name, std::vector<double> values);

  // Mean with a band of one standard deviation, from the columns of add_mean.
  static Series mean_series(std::string title, std::string colour, int point_type,
                            MeasureColumns columns);
  // Mean with a band between quartiles, from the columns of add_quartiles.
  static Series quartile_series(std::string title, std::string colour, int point_type,
                                MeasureColumns columns);
  // The same with the median in the middle, for measures that a few heads would carry away.
  static Series median_series(std::string title, std::string colour, int point_type,
                              MeasureColumns columns);

  // What the bars are, as a sentence for the caption; empty where there are none.
  std::string bars_note() const;

  // Empty when no number exists. The first column is the run's index, the last two its label and
  // phase.
  Table table() const;

 private:
  struct Column {
    std::string name;
    std::vector<double> values;  // (runs)
  };

  // NAME_low and NAME_high; the place of the first, 0 where no run has an interval.
  int add_intervals(const std::string& name, const ErrorName& error);

  const Results& results_;
  std::vector<Column> columns_;
  bool bars_ = false;
};

}  // namespace qkscope
