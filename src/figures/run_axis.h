// The axis of runs: their labels, and lines between phases.
#pragma once

#include <string>

#include "figures/results.h"

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

}  // namespace qkscope
