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
  std::span<const double> query;  // (points), ascending
  std::span<const double> value;  // (points)
};

class PairHeatmap {
 public:
  PairHeatmap(double extent, int bins)
      : bins_(bins),
        width_(extent / bins),
        per_token_((1 + 1e-15) / width_),
        cells_(static_cast<std::size_t>(bins * bins)),
        weighted_(cells_.size()) {}

  // How many pairs each of those stands for that are added from now on: more than one where it was
  // drawn from many.
  void set_weight(double weight);

  // Neighbouring points may share a cell: many points, few cells.
  void add(const PairAtPoints& pair);
  // Neighbouring points hardly share a cell.
  void add_apart(const PairAtPoints& pair);
  // Those that hold a pair.
  std::vector<HeatmapCell> cells();

 private:
  using Cell = double __attribute__((vector_size(16)));  // sum, and count of pairs evaluated
  struct WeightedCell {
    double sum = 0;
    double weight = 0;  // in all
    double count = 0;
  };

  int bin(double distance) const;

  int bins_;
  double width_;
  double per_token_;  // cells; where a distance is whole cells no rounding takes from it
  double weight_ = 1;
  std::vector<Cell> cells_;             // (key distance, query distance): of the present weight
  std::vector<WeightedCell> weighted_;  // those of weights before
};

}  // namespace qkscope
