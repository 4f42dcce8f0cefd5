// Plasticity over the distance between two keys and from their midpoint to the query.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// One pair of keys at several query positions.
struct PairAtPoints {
  double first = 0;  // position of the earlier key
  double second = 0;
  std::span<const double> query;  // (points), ascending
  std::span<const float> value;   // (points)
};

class PairHeatmap {
  using Cell = double __attribute__((vector_size(16)));  // {sum of values, number of values}

 public:
  PairHeatmap(double extent, int bins)
      : bins_(bins),
        width_(extent / bins),
        cells_(static_cast<std::size_t>(bins * bins)),
        weighted_(cells_.size()) {}

  // Sets the sampling weight of following pairs: the number of eligible pairs that each one
  // represents.
  void set_weight(double weight);

  // Adds one pair of keys at several points. Neighbouring points mostly share a cell.
  void add(const PairAtPoints& pair);

  // Returns the cells that hold at least one pair.
  std::vector<HeatmapCell> cells();

 private:
  struct WeightedCell {
    double sum = 0;
    double weight = 0;  // total
    double count = 0;
  };

  int bin(double distance) const {
    const int whole = static_cast<int>(distance / width_);
    return std::max(0, std::min(whole, bins_ - 1));
  }

  int bins_;
  double width_;
  double weight_ = 1;
  std::vector<Cell> cells_;             // (key distance, query distance), at the current weight
  std::vector<WeightedCell> weighted_;  // (key distance, query distance), at earlier weights
};

}  // namespace qkscope
