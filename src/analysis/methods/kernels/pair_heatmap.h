// Plasticity by the distance between two keys and by the distance of their midpoint to the query.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// Running sums of plasticity for one pair of keys at consecutive query points.
struct PairRunningSums {
  double first = 0;  // position of the earlier key
  double second = 0;
  std::int64_t begin = 0;  // points [begin, end), at most kMostPoints
  std::int64_t end = 0;
  // Prefix sums of plasticity over points [begin, i) for i = begin, ..., end: fixed-point integers
  // in units of kPlasticityUnit, modulo 2^32. Consecutive sums are `stride` elements apart.
  const std::uint32_t* running = nullptr;
  std::int64_t stride = 1;
};

class PairHeatmap {
 public:
  // `query` (points): positions of the query points, ascending. The array must outlive the heatmap.
  PairHeatmap(double extent, int bins, std::span<const double> query);

  // Sets the weight of pairs added later: the number of eligible pairs that each represents.
  void set_weight(double weight);

  // Adds the contribution of one pair of keys at several query positions. Points in the same
  // heat-map cell are added at once, as a difference of two prefix sums.
  void add(const PairRunningSums& pair);

  // Returns the heat-map cells with at least one pair of keys.
  std::vector<HeatmapCell> cells();

 private:
  struct PlasticityCell {
    std::uint64_t sum = 0;  // in units of kPlasticityUnit
    std::uint64_t count = 0;
  };
  struct WeightedCell {
    double sum = 0;
    double weight = 0;  // total
    double count = 0;
  };

  int distance_bin(double distance) const {
    const int whole = static_cast<int>(distance / width_);
    return std::max(0, std::min(whole, bins_ - 1));
  }
  int bins_;
  double width_;
  double weight_ = 1;
  std::span<const double> query_;
  // Width of a heat-map cell, in steps of the lookup table first_point_.
  std::int64_t cell_steps_;
  double steps_;                           // per token
  std::vector<std::int32_t> first_point_;  // (steps): the first point at or after the step
  std::vector<PlasticityCell> cells_;      // (key distance, query distance), at the current weight
  std::vector<WeightedCell> weighted_;     // (key distance, query distance), at earlier weights
};

}  // namespace qkscope
