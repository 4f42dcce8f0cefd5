// Plots over the runs of a sweep: a CSV with one row per run, plot commands for its columns, and
// panels that share an axis of runs.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/figure.h"
#include "analysis/figures/results.h"

namespace qkscope {

// Returns gnuplot commands for a vertical axis with run i at y = -i: the first run is at the top.
std::string y_axis_commands_for_runs(const AnalysisResults& results);

// Scale factor of an axis and the matching unit in gnuplot markup, for example "10^{-3} per token".
struct AxisUnit {
  double scale = 1;
  std::string text;
};
// Returns an axis unit whose scale is a power of ten that brings the quartiles of the groups into
// the range 1 to 10. The scale is 1 if the quartiles are already between 0.05 and 1000.
AxisUnit choose_axis_unit(const HeadValuesByRun& groups, const std::string& unit);

// A measure plotted over runs. Strings are gnuplot expressions of CSV columns: "$2 - $3".
struct PlotSeries {
  LegendEntry look;
  std::string middle;
  std::string low;  // band around the middle
  std::string high;
  std::string bar_low = {};  // 95 % interval of the mean; empty: unknown
  std::string bar_high = {};
};

// Returns plot commands for lines with points, bands (whiskers for a single run) and error bars
// over the runs (CSV column 1). `scale`: factor of the values; `below`: plot commands drawn first.
std::string line_plot_command(const std::vector<PlotSeries>& series, std::size_t runs,
                              double scale = 1, const std::string& below = "");
// Returns plot commands for points with whiskers: series side by side, no lines between runs.
std::string whisker_plot_command(const std::vector<PlotSeries>& series, double scale = 1,
                                 const std::string& below = "");

std::vector<LegendEntry> legend_entries(const std::vector<PlotSeries>& series);

// Returns 1 for each head of class `name` and 0 for each head of another class, grouped by run.
HeadValuesByRun class_membership_by_run(const AnalysisResults& results, const std::string& name);

// Shape (runs). Mean of each run; NaN for a run without values.
std::vector<double> mean_by_run(const HeadValuesByRun& groups);

struct TrajectoryPanel {
  std::string y_label;   // gnuplot markup
  std::string settings;  // ranges and ticks
  std::string plot;
  bool empty = false;  // no values: only the axes are drawn
};

struct TrajectoryLayout {
  double panel_height = 1.7;  // inches
  int columns = 1;
  std::vector<LegendEntry> legend = {};  // at the bottom of the figure
};

// How a measure is summarised over the heads of a run; plotted as a line with a band around it.
enum class SummaryStatistic { mean, mean_and_deviation, mean_and_quartiles, median_and_quartiles };

struct TrajectoryMeasure {
  std::string name;  // the columns of the CSV are NAME_mean and so on
  SummaryStatistic summary;
  LegendEntry look;
  std::string quantity;       // name of the measure in errors.parquet
  std::string heads = "all";  // heads averaged in errors.parquet: "all", "rope" or "nope"
};

// The CSV of a figure that compares runs: one row per run with summaries over its heads.
class TrajectoryTable {
 public:
  explicit TrajectoryTable(const AnalysisResults& results) : results_(results) {}

  // Adds a column with one number per run and returns its 1-based index.
  int add_column(const std::string& name, std::vector<double> values);
  // Adds a column with one number per run and returns its series, whose band has zero width.
  PlotSeries add_line_series(const std::string& name, std::vector<double> values, LegendEntry look);
  // Adds the columns of a measure and returns its series. Columns: NAME_mean and NAME_std, or
  // NAME_median, NAME_q25, NAME_q75, NAME_mean; NAME_heads; NAME_low and NAME_high if known.
  PlotSeries add_measure_series(const TrajectoryMeasure& measure, const HeadValuesByRun& groups);

  // Returns a sentence about the error bars for the caption, or "" if there are no error bars.
  std::string error_bars_note() const;

  // Draws the panels of a figure that has a title and a caption, and sets its data. A single column
  // of panels fits a column of a paper; several columns span the page.
  Figure draw(Figure figure, const std::vector<TrajectoryPanel>& panels,
              const TrajectoryLayout& layout) const;

 private:
  void add_error_bars(const TrajectoryMeasure& measure, PlotSeries& series);
  Table table() const;

  const AnalysisResults& results_;
  std::vector<Table::Column> columns_;  // of reals
  bool bars_ = false;
};

}  // namespace qkscope
