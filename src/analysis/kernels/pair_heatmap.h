// Plasticity over the distance between two keys and from their midpoint to the query.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// One pair of keys at several query positions.
struct PairAtPoints {
  double first = 0;  // position of the earlier key
  double second = 0;
  std::span<const double> query;  // (points)
  std::span<const double> value;  // (points)
  double weight = 1;  // how many pairs it stands for: more than one where it was drawn from many
};

class PairHeatmap {
 public:
  PairHeatmap(double extent, int bins)
      : bins_(bins), width_(extent / bins), cells_(static_cast<std::size_t>(bins * bins)) {}

  void add(const PairAtPoints& pair);
  // Those that hold a pair.
  std::vector<HeatmapCell> cells() const;

 private:
  struct Cell {
    double sum = 0;          // weighted
    double weight = 0;       // in all
    std::int64_t count = 0;  // pairs evaluated
  };

  int bin(double distance) const;

  int bins_;
  double width_;
  std::vector<Cell> cells_;  // (key distance, query distance)
};

}  // namespace qkscope
