// The axis of runs with its labels and phases, and panels that stand over one such axis.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/figure.h"
#include "analysis/figures/panels.h"
#include "analysis/figures/results.h"

namespace qkscope {

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

struct TrajectoryPanel {
  std::string y_label;   // gnuplot markup
  std::string settings;  // ranges and ticks
  std::string plot;
  bool empty = false;  // no number exists: axes alone
};

struct TrajectoryLayout {
  int columns = 1;
  double panel_height = 1.35;      // inches
  std::vector<KeyEntry> key = {};  // at the bottom of the figure
};

// Sets the figure's size and script. One column of panels is as wide as a column of a paper, more
// are as wide as its page. Run labels stand under the lowest panels, phases above the highest.
void draw_trajectories(const Results& results, const std::vector<TrajectoryPanel>& panels,
                       const TrajectoryLayout& layout, Figure& figure);

// A power of ten that brings the largest of these numbers between 1 and 1000, and how a unit is
// written that was divided by it: "10^{-3} per token", or just "per token" when it is 1.
struct Unit {
  double scale = 1;
  std::string text;
};
Unit unit_for(const std::vector<std::vector<double>>& groups, const std::string& unit);

}  // namespace qkscope
