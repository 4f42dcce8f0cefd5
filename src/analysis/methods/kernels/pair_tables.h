// Mean plasticity over pairs of keys, by query and key bucket, by query bin, and by the distance
// between the two keys and of their midpoint to the query.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/methods/kernels/key_pairs.h"
#include "analysis/methods/kernels/query_model.h"
#include "analysis/methods/moments.h"
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

  // Sets how many eligible pairs of keys each pair added after this call represents.
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

// Query models and the points (bins or buckets) at which they are evaluated.
struct QueryModelsAtPoints {
  QueryGaussians columns;
  QueryPoints points;
};

// Sums of plasticity over key pairs, by group of texts.
struct GroupPairSums {
  int groups = 0;
  std::vector<double> sum;     // (groups, points): of plasticity over pairs
  std::vector<double> weight;  // (groups, points): pairs

  // Returns the mean over the pairs of all groups of texts except one; NaN if there are no pairs.
  double mean_without(std::size_t group, std::size_t point) const;
};

// Sums of plasticity by text and query point. Standard errors treat texts as independent.
class ExamplePlasticitySums {
 public:
  ExamplePlasticitySums(std::int64_t examples, std::int64_t points)
      : sum_(examples, points), count_(examples, points) {}

  double* sums_of_example(std::int64_t example) { return sum_.row(example); }
  void add_pair_count(std::int64_t example, std::int64_t point, std::int64_t pairs) {
    count_(example, point) += static_cast<double>(pairs);
  }
  // Returns the mean over the evaluated pairs of one text, or `otherwise` if the text has none.
  double mean_of_example(std::int64_t example, std::int64_t point, double otherwise) const {
    return count_(example, point) > 0 ? sum_(example, point) / count_(example, point) : otherwise;
  }
  MeanPlasticity mean(std::int64_t point, std::int64_t eligible) const;
  // Returns sums over groups of texts. `texts`: text id of each example (RowsView::example).
  GroupPairSums sum_by_text_group(const TextGroups& groups,
                                  std::span<const std::int64_t> texts) const;

 private:
  Matrix sum_;
  Matrix count_;
};

struct PlasticityProfileTables {
  std::vector<MeanPlasticity> profile;  // (points)
  GroupPairSums groups;
  ExamplePlasticitySums texts{0, 0};
  std::vector<HeatmapCell> heatmap;  // cells with at least one pair
};

struct PairTableInput {
  KeyTile keys;             // all, sorted by text and profile bin, rotated
  const CentredRows& rows;  // the keys before sorting and rotation
  const LinearQueryModel& model;
  const SortedKeys& by_bucket;  // keys by text and bucket: mostly the order of by_bin
  const SortedKeys& by_bin;
  const QueryModelsAtPoints& at_buckets;  // query models of the bucket table
  const QueryModelsAtPoints& at_bins;     // query models of the profile
  const EligibleKeys& eligible;           // keys of by_bin at the points of at_bins
  const BucketRanges& ranges;
  const TextGroups& groups;
  double extent;  // tokens: length of the heatmap's axes
};

struct PairPlasticityTables {
  // Mean plasticity over pairs of keys in one bucket, for every later query bucket in the window.
  std::vector<BucketCell> buckets;
  // Mean plasticity over all pairs of keys before a query point and within its attention window.
  PlasticityProfileTables profile;
};
PairPlasticityTables compute_pair_tables(const PairTableInput& source,
                                         const PlasticityOptions& options);

}  // namespace qkscope
