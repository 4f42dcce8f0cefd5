// Mean plasticity (how often two keys change order over queries) of key pairs: by query and key
// bucket, by query bin, and by the distances between the keys and from their midpoint to the query.
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

// Prefix sums of the plasticity of one pair of keys over consecutive queries (points).
struct PlasticityPrefixSums {
  double first = 0;  // position of the earlier key
  double second = 0;
  std::int64_t begin = 0;  // points [begin, end), at most kMostPoints
  std::int64_t end = 0;
  // Prefix sums of plasticity over points [begin, i) for i = begin, ..., end: fixed-point integers
  // in units of kPlasticityUnit, modulo 2^32. Consecutive sums are `stride` elements apart.
  const std::uint32_t* running = nullptr;
  std::int64_t stride = 1;
};

class PlasticityHeatmap {
 public:
  // `query` (points): positions of the query points, ascending. The array must outlive the heatmap.
  PlasticityHeatmap(double extent, int bins, std::span<const double> query);

  // Sets the weight of pairs added from now on: the eligible pairs that each one represents.
  void set_pair_weight(double weight);

  // Adds the contribution of one pair of keys at several query positions. Points in the same
  // heat-map cell are added at once, as a difference of two prefix sums.
  void add_key_pair(const PlasticityPrefixSums& pair);

  // Returns the heat-map cells with at least one pair of keys.
  std::vector<HeatmapCell> cells();

 private:
  struct PlasticityCell {
    std::uint64_t sum = 0;  // in units of kPlasticityUnit
    std::uint64_t count = 0;
  };
  struct WeightedCellSums {
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
  // Width of a heat-map cell, counted in entries of the lookup table first_point_.
  std::int64_t cell_steps_;
  double steps_;                            // per token
  std::vector<std::int32_t> first_point_;   // (steps): first query point at or after the step
  std::vector<PlasticityCell> cells_;       // (key distance, query distance), at the current weight
  std::vector<WeightedCellSums> weighted_;  // (key distance, query distance), at earlier weights
};

// Gaussian models of queries, and the points (bins or buckets) at which they are evaluated.
struct QueryModelsAtPoints {
  QueryGaussians columns;
  QueryEvaluationPoints points;
};

// Sums of plasticity over key pairs, by group of texts.
struct PlasticitySumsByGroup {
  int groups = 0;
  std::vector<double> sum;     // (groups, points): of plasticity over pairs
  std::vector<double> weight;  // (groups, points): pairs

  // Returns the mean over the pairs of all groups of texts except one; NaN if there are no pairs.
  double mean_without_group(std::size_t group, std::size_t point) const;
};

// Sums of plasticity by text and query point. Standard errors treat texts as independent.
class PlasticitySumsByText {
 public:
  PlasticitySumsByText(std::int64_t examples, std::int64_t points)
      : sum_(examples, points), count_(examples, points) {}

  double* sums_of_example(std::int64_t example) { return sum_.row(example); }
  void add_pair_count(std::int64_t example, std::int64_t point, std::int64_t pairs) {
    count_(example, point) += static_cast<double>(pairs);
  }
  // Returns the mean over the evaluated pairs of one text, or `fallback` if the text has none.
  double mean_plasticity(std::int64_t example, std::int64_t point, double fallback) const {
    return count_(example, point) > 0 ? sum_(example, point) / count_(example, point) : fallback;
  }
  MeanPlasticity mean_at_point(std::int64_t point, std::int64_t eligible) const;
  // Returns sums over groups of texts. `texts`: text id of each example (RowsView::example).
  PlasticitySumsByGroup sum_by_text_group(const JackknifeGroups& groups,
                                          std::span<const std::int64_t> texts) const;

 private:
  Matrix sum_;
  Matrix count_;
};

struct PlasticityProfileTables {
  std::vector<MeanPlasticity> profile;  // (points)
  PlasticitySumsByGroup groups;
  PlasticitySumsByText texts{0, 0};
  std::vector<HeatmapCell> heatmap;  // cells with at least one pair
};

struct PlasticityTableInput {
  KeyTile keys;             // all keys in the order of by_bin, in rotated coordinates
  const CentredRows& rows;  // the keys before sorting and rotation
  const LinearQueryModel& model;
  const SortedKeys& by_bucket;  // keys sorted by text and bucket, often the same as by_bin
  const SortedKeys& by_bin;
  const QueryModelsAtPoints& at_buckets;  // query models of the bucket table
  const QueryModelsAtPoints& at_bins;     // query models of the profile
  const EligibleKeys& eligible;           // keys of by_bin eligible at each point of at_bins
  const BucketRanges& ranges;
  const JackknifeGroups& groups;
  double extent;  // tokens: length of the heatmap's axes
};

struct BucketAndProfileTables {
  // Mean plasticity of the key pairs in a bucket, for each later query bucket that attends to them.
  std::vector<BucketCell> buckets;
  // Mean plasticity over all pairs of keys before a query point and within its attention window.
  PlasticityProfileTables profile;
};
BucketAndProfileTables compute_plasticity_tables(const PlasticityTableInput& source,
                                                 const PlasticityOptions& options);

}  // namespace qkscope
