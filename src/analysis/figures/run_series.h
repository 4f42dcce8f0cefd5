// Measures over runs: the CSV of a figure with one row per run, and how its columns are plotted.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/panels.h"
#include "analysis/figures/results.h"
#include "analysis/figures/run_axis.h"

namespace qkscope {

// A measure over runs. Each value is a gnuplot expression of CSV columns, for example "$2 - $3".
struct Series {
  std::string title;  // gnuplot markup
  std::string colour;
  int point_type;
  std::string middle;
  std::string low;  // band around the middle
  std::string high;
  std::string bar_low = "";  // 95 % interval of the mean; empty: unknown
  std::string bar_high = "";
};

// CSV columns of a measure, counted from 1.
struct MeasureColumns {
  int first = 0;
  int interval = 0;  // column NAME_low, followed by NAME_high; 0: no interval
};

// Identifies an interval in errors.parquet.
struct ErrorName {
  std::string quantity = "";  // empty: no interval
  std::string heads = "all";
};

// Plots lines with points, bands and error bars over column 1, the run; with a single run whiskers
// replace the band. Values are multiplied by `scale`.
std::string plot_series(const std::vector<Series>& series, std::size_t runs, double scale = 1);
// Plots points with whiskers, the series side by side, without lines between runs.
std::string plot_whiskers(const std::vector<Series>& series, double scale = 1);

// A dotted line over the CSV column `place`: the null value from shuffled positions.
std::string null_line(int place, const std::string& colour);
inline constexpr char kNullNote[] =
    "Dotted lines: mean |r| that positions without relation to the vectors would give.";
// Returns `plot` with `lines` drawn first, so that they lie below the series.
std::string with_lines(const std::string& plot, const std::string& lines);
// gnuplot settings of a panel with stacked bars of shares.
inline constexpr char kStackedBars[] =
    "set yrange [0:1]\nset ytics 0.2\nunset grid\nset boxwidth 0.78\n"
    "set style data histograms\nset style histogram rowstacked\n";
std::vector<double> means_of(const std::vector<std::vector<double>>& groups);

std::vector<KeyEntry> key_of(const std::vector<Series>& series);

// The CSV of a figure over runs: one row per run with summaries of measures over its heads.
class RunTable {
 public:
  explicit RunTable(const Results& results) : results_(results) {}

  // Adds NAME_mean, NAME_std and NAME_heads, and NAME_low and NAME_high if errors.parquet has them.
  MeasureColumns add_mean(const std::string& name, const std::vector<std::vector<double>>& groups,
                          const ErrorName& error = {});
  // Adds NAME_median, NAME_q25, NAME_q75, NAME_mean, NAME_heads and the interval of the mean.
  MeasureColumns add_quartiles(const std::string& name,
                               const std::vector<std::vector<double>>& groups,
                               const ErrorName& error = {});
  // Adds a column with one number per run and returns its place.
  int add(const std::string& name, std::vector<double> values);
  // Adds the mean of a column of shuffled positions and returns the dotted line that shows it.
  std::string add_null(const Frame& frame, const std::string& column, const std::string& colour);

  // Mean with a band of one standard deviation, from the columns of add_mean.
  static Series mean_series(std::string title, std::string colour, int point_type,
                            MeasureColumns columns);
  // Mean with a band between the quartiles, from the columns of add_quartiles.
  static Series quartile_series(std::string title, std::string colour, int point_type,
                                MeasureColumns columns);
  // Median with a band between the quartiles, for measures with heavy tails.
  static Series median_series(std::string title, std::string colour, int point_type,
                              MeasureColumns columns);

  // Sentence about the error bars for the caption; empty if there are none.
  std::string bars_note() const;

  // Returns the table: run index, measures, label and phase. Without any value it has no rows.
  Table table() const;
  // Completes a figure that has a title and a caption: draws the panels and sets its data.
  Figure draw(Figure figure, const std::vector<TrajectoryPanel>& panels,
              const TrajectoryLayout& layout) const;

 private:
  struct Column {
    std::string name;
    std::vector<double> values;  // (runs)
  };

  // Adds NAME_low and NAME_high. Returns the place of NAME_low, 0 if no run has an interval.
  int add_intervals(const std::string& name, const ErrorName& error);

  const Results& results_;
  std::vector<Column> columns_;
  bool bars_ = false;
};

}  // namespace qkscope
