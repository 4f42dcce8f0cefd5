// Panels over the same axis of runs, each with its own measure.
#pragma once

#include <string>
#include <vector>

#include "figures/figure.h"

namespace qkscope {

struct TrajectoryPanel {
  std::string y_label;   // gnuplot markup
  std::string settings;  // ranges and key
  std::string plot;
};

// Sets the figure's size and script. One column of panels is as wide as a column of a paper, more
// are as wide as its page. Run labels stand under the lowest panels, phases above the highest.
void draw_trajectories(const Results& results, const std::vector<TrajectoryPanel>& panels,
                       int columns, Figure& figure);

}  // namespace qkscope
