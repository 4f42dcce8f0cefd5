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
  std::span<const double> value;  // (points)
};

class PairHeatmap {
  using Cell = double __attribute__((vector_size(16)));  // sum, and count of pairs evaluated

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

  // A pair at points of which neighbours share cells: many points, few cells.
  void add(const PairAtPoints& pair);

  // The cells of one pair of keys, for points that are added one by one.
  class Row {
   public:
    void add(double query, double value) {
      // As reals, so that no branch comes of it.
      const double cell = std::min(std::max((query - middle_) * per_token_, 0.0), last_);
      cells_[static_cast<std::int64_t>(cell)] += Cell{value, 1};
    }

   private:
    friend class PairHeatmap;
    Cell* cells_;
    double middle_;  // between the keys
    double per_token_;
    double last_;  // cell
  };
  Row row(double first, double second) {
    Row row;
    row.cells_ = cells_.data() + bin(second - first) * bins_;
    row.middle_ = 0.5 * (first + second);
    row.per_token_ = per_token_;
    row.last_ = bins_ - 1;
    return row;
  }

  // Those that hold a pair.
  std::vector<HeatmapCell> cells();

 private:
  struct WeightedCell {
    double sum = 0;
    double weight = 0;  // in all
    double count = 0;
  };

  int bin(double distance) const {
    const int whole = static_cast<int>(distance / width_);
    return std::max(0, std::min(whole, bins_ - 1));
  }

  int bins_;
  double width_;
  double per_token_;  // cells; where a distance is whole cells no rounding takes from it
  double weight_ = 1;
  std::vector<Cell> cells_;             // (key distance, query distance): of the present weight
  std::vector<WeightedCell> weighted_;  // those of weights before
};

}  // namespace qkscope
