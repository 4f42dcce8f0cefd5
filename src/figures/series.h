// Measures over runs as lines with bands, or points with whiskers.
#pragma once

#include <string>
#include <vector>

#include "figures/key.h"

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

}  // namespace qkscope
