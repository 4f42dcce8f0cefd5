#include "analysis/methods/plasticity.h"

#include <algorithm>
#include <cmath>

#include "analysis/methods/kernels/pair_tables.h"
#include "analysis/methods/profile_bins.h"
#include "analysis/methods/profile_means.h"
#include "analysis/methods/profile_replicates.h"
#include "base/core/nan.h"
#include "base/numerics/normality.h"

namespace qkscope {
namespace {

ResidualNormality residual_normality(const QueryModel& model, double p_alpha) {
  if (model.normality.empty()) return {kNan, kNan, kNan, kNan, kNan, kNan, kNan};
  const auto& first = model.normality.front();
  ResidualNormality result{first.skew, first.excess_kurtosis, first.ks_p, kNan, kNan, kNan, kNan};
  std::vector<double> skews;
  std::vector<double> kurtoses;
  std::vector<double> ps;
  for (std::size_t j = 1; j < model.normality.size(); ++j) {
    const auto& noise = model.normality[j];
    skews.push_back(std::fabs(noise.skew));
    kurtoses.push_back(std::fabs(noise.excess_kurtosis));
    ps.push_back(noise.ks_p);
  }
  double known = 0;
  double below = 0;
  for (const double p : ps) {
    known += std::isnan(p) ? 0 : 1;
    below += p < p_alpha ? 1 : 0;
  }
  result.median_abs_skew = median(skews);
  result.median_abs_kurtosis = median(kurtoses);
  result.median_ks_p = median(ps);
  if (known > 0) result.share_below_alpha = below / known;
  return result;
}

// Queries that drift with position and have the same variance everywhere.
QueryColumns linear_columns(const QueryModel& model) {
  QueryColumns columns{Matrix(1, std::ssize(model.alpha)),
                       Matrix(1, std::ssize(model.alpha)),
                       model.beta.front(),
                       {}};  // the rotation leaves none on the others
  columns.mean.data.assign(model.alpha.begin(), model.alpha.end());
  columns.variance.data.assign(model.residual_variance.begin(), model.residual_variance.end());
  return columns;
}

// The linear model at every bucket's mean position.
QuerySide linear_at_buckets(const QueryModel& model) {
  QuerySide side{linear_columns(model), {}};
  for (const auto& bucket : model.buckets) side.points.add(bucket.bucket, bucket.position, 0, 0);
  return side;
}

// The drift on the first coordinate only; the others as the bucket's own queries have them. One
// column per bucket that has a variance, at its queries' mean position.
QueryColumns bucket_columns(const QueryModel& model, std::vector<const QueryBucket*>& buckets) {
  QueryColumns columns;
  columns.drift = model.beta[0];
  for (const auto& bucket : model.buckets) {
    if (bucket.variance.empty()) continue;
    buckets.push_back(&bucket);
    columns.bucket.push_back(bucket.bucket);
    auto& mean = columns.mean.data;
    mean.push_back(model.alpha[0] + model.beta[0] * bucket.position);
    mean.insert(mean.end(), bucket.mean.begin() + 1, bucket.mean.end());
    auto& variance = columns.variance.data;
    variance.push_back(model.residual_variance[0]);
    variance.insert(variance.end(), bucket.variance.begin() + 1, bucket.variance.end());
  }
  columns.mean.rows = columns.variance.rows = std::ssize(buckets);
  columns.mean.cols = columns.variance.cols = std::ssize(model.alpha);
  return columns;
}

// Every bin that has a model, at its own queries' mean position. A bin is too small to tell the
// variance of a hundred coordinates: it has the model of the bucket that it lies in.
QuerySide profile_side(const QueryModel& model, std::span<const QueryBin> bins,
                       PlasticityOptions::QueryModelKind kind) {
  const bool linear = kind == PlasticityOptions::QueryModelKind::linear;
  std::vector<const QueryBucket*> buckets;
  QuerySide side{linear ? linear_columns(model) : bucket_columns(model, buckets), {}};
  for (const auto& bin : bins) {
    const auto found = std::lower_bound(
        buckets.begin(), buckets.end(), bin.bucket,
        [](const QueryBucket* bucket, std::int32_t number) { return bucket->bucket < number; });
    if (!linear && (found == buckets.end() || (*found)->bucket != bin.bucket)) continue;
    side.points.add(bin.bin, bin.position,
                    linear ? 0 : static_cast<std::int32_t>(found - buckets.begin()),
                    linear ? 0 : (*found)->position);
  }
  return side;
}

double mean_of_table(const std::vector<BucketCell>& table) {
  double sum = 0;
  double count = 0;
  for (const auto& cell : table) {
    if (std::isnan(cell.mean.ap)) continue;
    sum += cell.mean.ap;
    count += 1;
  }
  return count > 0 ? sum / count : kNan;
}

void weigh_components(PlasticityResult& result) {
  double total = 0;
  for (const double r2 : result.component_r2) total += std::max(0.0, r2);
  const double uniform = 1 / static_cast<double>(result.component_r2.size());
  for (const double r2 : result.component_r2)
    result.component_weight.push_back(total > 0 ? std::max(0.0, r2) / total : uniform);
}

// Points that were compared become points of the profile; bins without a model stay empty.
void take_profile(std::span<const QueryBin> bins, const QueryPoints& points,
                  const ProfileTables& tables, PlasticityResult& result) {
  std::size_t next = 0;  // point
  for (const auto& bin : bins) {
    result.profile.push_back(
        {bin.bin, bin.low, bin.high, bin.position, bin.queries, {kNan, kNan, 0, 0}, kNan});
    if (next == points.bin.size() || points.bin[next] != bin.bin) continue;
    result.profile.back().mean = tables.profile[next++];
  }
}

// Keys by their bins in the profile: mostly the order of their buckets.
SortedKeys sort_by_bin(const Rows& keys, const ProfileGrid& grid, SortedKeys by_bucket) {
  if (grid.bins == 0) return by_bucket;
  bool ascending = true;
  for (std::size_t i = 0; i < by_bucket.bin.size(); ++i) {
    by_bucket.bin[i] = grid.bin(by_bucket.position[i]);
    ascending = ascending && (i == 0 || by_bucket.example[i] != by_bucket.example[i - 1] ||
                              by_bucket.bin[i] >= by_bucket.bin[i - 1]);
  }
  if (ascending) return by_bucket;
  return sort_keys(keys, profile_bins_of(grid, keys));
}

}  // namespace

PlasticityResult plasticity_of_model(const QueryModel& model, const PlasticityOptions& options) {
  PlasticityResult result;
  result.r2_pos = model.r_squared_mean;
  result.beta_norm = model.beta_norm;
  result.r2_scalar = model.scalar_r_squared;
  result.mae_baseline = model.mae_baseline;
  result.mae_projection = model.mae_projection;
  result.mae_ratio = model.mae_projection / model.mae_baseline;
  result.normality = residual_normality(model, options.p_alpha);
  result.component_r2 = model.r_squared;
  weigh_components(result);
  result.ap_overall = result.ap_profile_overall = kNan;
  result.ap_first20 = result.ap_last20 = result.ap_drop = kNan;
  return result;
}

PlasticityResult plasticity_with_keys(const ModelledQueries& queries, const CentredRows& keys,
                                      const PlasticityOptions& options) {
  const QueryModel& model = queries.model;
  PlasticityResult result = plasticity_of_model(model, options);
  const BucketRanges buckets = options.sampler ? BucketRanges(*options.sampler)
                                               : BucketRanges(queries.positions, keys.source);
  const ProfileGrid grid =
      profile_grid(queries.positions, keys.source, buckets, queries.count, options);
  result.profile_bins = grid.bins;
  result.profile_context = static_cast<double>(grid.context);
  const auto bins = query_bins(grid, queries.positions, buckets, queries.times);
  const QuerySide side = profile_side(model, bins, options.profile_model);
  const TextGroups groups = options.text_groups.empty() ? TextGroups(queries.positions, keys.source)
                                                        : TextGroups(options.text_groups);
  const SortedKeys by_bucket = sort_keys(keys.source, keys.source.bucket);
  const SortedKeys by_bin = sort_by_bin(keys.source, grid, by_bucket);
  auto tables = pair_tables({keys, model, by_bucket, by_bin, linear_at_buckets(model), side,
                             buckets, groups, result.profile_context},
                            options);
  result.table = std::move(tables.buckets);
  result.ap_overall = mean_of_table(result.table);
  take_profile(bins, side.points, tables.profile, result);
  if (options.replicates && queries.rows != nullptr)
    result.profile_without = profile_without_groups(
        {*queries.rows, keys, model, by_bin, side, grid, bins, groups, tables.profile.groups},
        options);
  summarise_profile(options, result);
  result.heatmap = std::move(tables.profile.heatmap);
  return result;
}

PlasticityResult attention_plasticity(const CentredRows& queries, const CentredRows& keys,
                                      std::vector<double> signs, const PlasticityOptions& options) {
  return plasticity_with_keys(
      {fit_queries(queries, std::move(signs)), queries.source, {}, queries.size(), &queries}, keys,
      options);
}

}  // namespace qkscope
