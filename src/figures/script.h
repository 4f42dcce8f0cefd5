// Pieces of gnuplot scripts that figures share: strings, the axis of runs, grids of panels.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "figures/results.h"

namespace qkscope {

// A gnuplot string that shows exactly this text: nothing in it is a command or markup. Control
// characters become spaces.
std::string quoted(std::string_view text);

// At most `characters`, the middle left out: ends of names differ.
std::string shortened(std::string_view text, std::size_t characters);

// The same text without control characters, for cells of a CSV that gnuplot reads line by line.
std::string one_line(std::string_view text);

// The step 1, 2 or 5 times a power of ten that makes about `wanted` steps of `range`.
double round_step(double range, int wanted);

// How wide the axis of runs is, and what stands beside it.
struct RunAxis {
  double inches = 2.8;
  bool labels = true;  // of the runs, below
  bool phases = true;  // their names, above; lines between them are always there
};

// x = 0, 1, ... are the runs: range, slanted labels, dashed lines between phases.
std::string run_axis(const Results& results, const RunAxis& axis);
// y = 0, -1, ... are the runs from above.
std::string run_rows(const Results& results);
// Inches that the labels of the runs need under run_axis.
double run_labels_height(const Results& results);

// Inches that the names of the phases need above it.
double phases_height(const Results& results, double inches);

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

// A mark and what it stands for.
struct KeyEntry {
  std::string title;  // gnuplot markup
  std::string colour;
  int point_type;
};

// A key in centred rows over a figure of this width. gnuplot's own key moves with the
// plot and hides what is under it.
class Key {
 public:
  Key(std::vector<KeyEntry> entries, double figure_width);
  double height() const;                        // inches; 0 without entries
  std::string labels(double bottom = 0) const;  // `bottom` inches above the figure's lower edge

 private:
  struct Row {
    std::vector<KeyEntry> entries;
    double width = 0;  // inches
  };
  double figure_width_;
  std::vector<Row> rows_;
};
std::vector<KeyEntry> key_of(const std::vector<Series>& series);

// Panels with common axes, in rows.
class Panels {
 public:
  struct Options {
    int count = 1;
    int columns = 5;      // at most
    double aspect = 1;    // height of a panel over its width
    double top = 0.25;    // inches above the panels
    double right = 0.08;  // and beside them
    std::string y_format = "%h";
    bool own_ranges = false;  // every panel has its own axes and shows their numbers
    std::string x_label;      // gnuplot markup
    std::string y_label;
  };

  explicit Panels(Options options);
  double width() const { return width_; }
  double height() const { return height_; }

  std::string begin() const;
  std::string key(const std::vector<KeyEntry>& entries) const;  // above the panels
  // Title and ticks of panel `i`; the plot command follows.
  std::string panel(int i, std::string_view title) const;
  std::string end() const;

 private:
  Options options_;
  int columns_ = 1;
  int rows_ = 1;
  double left_ = 0.46;
  double bottom_ = 0.42;
  double gap_x_ = 0.08;
  double gap_y_ = 0.2;
  double panel_ = 0;
  double width_ = 0;
  double height_ = 0;
};

}  // namespace qkscope
