// Mean plasticity over pairs: by query and key bucket, by query bucket, by distances.
#pragma once

#include "analysis/kernels/bucket_ranges.h"
#include "analysis/kernels/key_pairs.h"
#include "analysis/text_groups.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Pairs with both keys in one bucket, for every later query bucket within the window.
std::vector<BucketCell> bucket_table(const SortedKeys& keys, const QueryColumns& columns,
                                     const BucketRanges& ranges, const PlasticityOptions& options);

struct ProfileTables {
  std::vector<MeanPlasticity> profile;  // (columns)
  ProfileGroups groups;                 // over columns
  std::vector<HeatmapCell> heatmap;     // cells that hold a pair
};

// All pairs of keys before each query bucket, within the window.
ProfileTables profile_tables(const SortedKeys& keys, const QueryColumns& columns,
                             const TextGroups& groups, const PlasticityOptions& options);

// Sums per example and column; the standard error of their ratio treats examples as independent.
class ExampleSums {
 public:
  ExampleSums(std::int64_t examples, std::int64_t columns)
      : sum_(examples, columns), count_(examples, columns) {}

  void add(std::int64_t example, std::int64_t column, double value) {
    sum_(example, column) += value;
    count_(example, column) += 1;
  }
  void clear();
  MeanPlasticity mean(std::int64_t column, std::int64_t eligible) const;
  // Over groups of examples; `texts` (examples) are their keys.
  ProfileGroups grouped(const TextGroups& groups, std::span<const std::int64_t> texts) const;

 private:
  Matrix sum_;
  Matrix count_;
};

}  // namespace qkscope
