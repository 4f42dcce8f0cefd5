// The axis of runs with its labels and phases, and trajectories: panels that share this axis.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/figure.h"
#include "analysis/figures/panels.h"
#include "analysis/figures/results.h"

namespace qkscope {

struct RunAxis {
  double inches = 2.8;
  bool labels = true;  // run titles below the axis
  bool phases = true;  // phase names above the plot; dashed lines between phases are always drawn
};

// Horizontal axis on which run i is at x = i: range, run titles, dashed lines between phases.
std::string run_axis(const Results& results, const RunAxis& axis);
// Vertical axis on which run i is at y = -i, so that the first run is at the top.
std::string run_rows(const Results& results);
// Height in inches of the run titles below run_axis().
double run_labels_height(const Results& results);

// Height in inches of the phase names above an axis that is `inches` wide.
double phases_height(const Results& results, double inches);

struct TrajectoryPanel {
  std::string y_label;   // gnuplot markup
  std::string settings;  // ranges and ticks
  std::string plot;
  bool empty = false;  // no values: only the axes are drawn
};

struct TrajectoryLayout {
  int columns = 1;
  double panel_height = 1.35;      // inches
  std::vector<KeyEntry> key = {};  // legend at the bottom of the figure
};

// Sets the size and script of the figure. One column of panels is as wide as a column of a paper,
// two or more are as wide as its page.
void draw_trajectories(const Results& results, const std::vector<TrajectoryPanel>& panels,
                       const TrajectoryLayout& layout, Figure& figure);

// Scale factor for an axis and the matching unit in gnuplot markup, "10^{-3} per token".
struct Unit {
  double scale = 1;
  std::string text;
};
// Returns the power of ten that brings the quartiles of these groups between 1 and 10; scale 1 if
// they already lie between 0.05 and 1000.
Unit unit_for(const std::vector<std::vector<double>>& groups, const std::string& unit);

}  // namespace qkscope
