// Mean plasticity over pairs: by query and key bucket, by query bin, by distances.
#pragma once

#include "analysis/methods/kernels/bucket_ranges.h"
#include "analysis/methods/kernels/key_pairs.h"
#include "analysis/methods/text_groups.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Queries that are compared: their models, and the points at which they stand.
struct QuerySide {
  QueryColumns columns;
  QueryPoints points;
};

// Sums over groups of texts.
struct PairGroups {
  int groups = 0;
  std::vector<double> sum;     // (groups, points): of plasticity over pairs
  std::vector<double> weight;  // (groups, points): pairs
};

struct ProfileTables {
  std::vector<MeanPlasticity> profile;  // (points)
  PairGroups groups;
  std::vector<HeatmapCell> heatmap;  // cells that hold a pair
};

// What is compared.
struct PairSource {
  const CentredRows& keys;
  const QueryModel& model;
  const SortedKeys& by_bucket;  // keys, whose bins are buckets
  const SortedKeys& by_bin;     // the same in the profile's bins: mostly in the same order
  const QuerySide& at_buckets;  // queries
  const QuerySide& at_bins;
  const BucketRanges& ranges;
  const TextGroups& groups;
  double extent;  // where the heatmap's axes end
};

struct PairTables {
  // Pairs with both keys in one bucket, for every later query bucket within the window.
  std::vector<BucketCell> buckets;
  // All pairs of keys before each point, within the window.
  ProfileTables profile;
};
PairTables pair_tables(const PairSource& source, const PlasticityOptions& options);

// Sums per example and point; the standard error of their ratio treats examples as independent.
class ExampleSums {
 public:
  ExampleSums(std::int64_t examples, std::int64_t points)
      : sum_(examples, points), count_(examples, points) {}

  double* sums(std::int64_t example) { return sum_.row(example); }
  void count(std::int64_t example, std::int64_t point, std::int64_t pairs) {
    count_(example, point) += static_cast<double>(pairs);
  }
  MeanPlasticity mean(std::int64_t point, std::int64_t eligible) const;
  // Over groups of examples; `texts` (examples) are their keys.
  PairGroups grouped(const TextGroups& groups, std::span<const std::int64_t> texts) const;

 private:
  Matrix sum_;
  Matrix count_;
};

}  // namespace qkscope
