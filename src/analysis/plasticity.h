// Attention plasticity: how often the choice between two keys of one text would flip with the
// query's content, at each query position. Exact over all eligible pairs unless a cell holds too
// many.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/kernels/query_model.h"
#include "analysis/moments.h"

namespace qkscope {

struct PlasticityOptions {
  enum class QueryModelKind { bucket, linear };
  QueryModelKind profile_model = QueryModelKind::bucket;
  std::int64_t max_pairs = 10'000'000;  // per cell; above it a seeded sample of this size
  std::uint64_t seed = 0;
  double p_alpha = 0.01;  // of the normality tests
  int heatmap_bins = 16;  // per axis
  std::optional<std::int32_t> sliding_window;
};

struct MeanPlasticity {
  double ap = 0;              // NaN when there is no pair
  double stderr_ap = 0;       // over examples; NaN below two examples
  std::int64_t pairs = 0;     // used
  std::int64_t eligible = 0;  // more than `pairs` when sampled
};

struct BucketCell {
  std::int32_t q_bucket = 0;
  std::int32_t k_bucket = 0;
  MeanPlasticity mean;
};

struct ProfilePoint {
  std::int32_t q_bucket = 0;
  double position = 0;
  std::int64_t queries = 0;
  MeanPlasticity mean;
};

struct HeatmapCell {
  double key_distance_low = 0;  // |t1 - t2| in [low, high)
  double key_distance_high = 0;
  double query_distance_low = 0;  // query position - midpoint of the pair
  double query_distance_high = 0;
  double ap = 0;
  std::int64_t pairs = 0;
};

struct ResidualNormality {
  double first_skew = 0;
  double first_kurtosis = 0;
  double first_ks_p = 0;
  double median_abs_skew = 0;  // over the other coordinates
  double median_abs_kurtosis = 0;
  double median_ks_p = 0;
  double share_below_alpha = 0;
};

struct PlasticityResult {
  double r2_pos = 0;
  double beta_norm = 0;
  double r2_scalar = 0;
  double mae_baseline = 0;
  double mae_projection = 0;
  double mae_ratio = 0;
  ResidualNormality normality;
  double ap_overall = 0;
  double ap_profile_overall = 0;
  double ap_first20 = 0;
  double ap_last20 = 0;
  double ap_drop = 0;
  std::vector<BucketCell> table;
  std::vector<ProfilePoint> profile;
  std::vector<HeatmapCell> heatmap;
  std::vector<double> component_r2;      // (dim)
  std::vector<double> component_weight;  // (dim), sums to 1
};

PlasticityResult attention_plasticity(const CentredRows& queries, const CentredRows& keys,
                                      const PlasticityOptions& options);

}  // namespace qkscope
