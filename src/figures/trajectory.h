// Panels over the same axis of runs, each with its own measure.
#pragma once

#include <string>
#include <vector>

#include "figures/figure.h"
#include "figures/key.h"

namespace qkscope {

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
