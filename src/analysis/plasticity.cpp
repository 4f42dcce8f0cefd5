#include "analysis/plasticity.h"

#include <algorithm>
#include <cmath>

#include "analysis/kernels/pair_tables.h"
#include "core/nan.h"
#include "numerics/normality.h"

namespace qkscope {
namespace {

ResidualNormality residual_normality(const QueryModel& model, double p_alpha) {
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

// A row of a matrix.
Matrix line_of(std::span<const double> values) {
  Matrix line(1, std::ssize(values));
  line.data.assign(values.begin(), values.end());
  return line;
}

// Queries that drift with position and have the same variance everywhere.
QueryColumns linear_columns(const QueryModel& model) {
  QueryColumns columns;
  for (const auto& bucket : model.buckets) {
    columns.bucket.push_back(bucket.bucket);
    columns.position.push_back(bucket.position);
  }
  columns.mean = line_of(model.alpha);
  columns.drift = model.beta.front();  // the rotation leaves none on the others
  columns.variance = line_of(model.residual_variance);
  return columns;
}

// The drift on the first coordinate only; the others as the bucket's own queries have them.
QueryColumns bucket_columns(const QueryModel& model) {
  QueryColumns columns;
  for (const auto& bucket : model.buckets) {
    if (bucket.variance.empty()) continue;
    columns.bucket.push_back(bucket.bucket);
    columns.position.push_back(bucket.position);
    auto& mean = columns.mean.data;
    mean.push_back(model.alpha[0] + model.beta[0] * bucket.position);
    mean.insert(mean.end(), bucket.mean.begin() + 1, bucket.mean.end());
    auto& variance = columns.variance.data;
    variance.push_back(model.residual_variance[0]);
    variance.insert(variance.end(), bucket.variance.begin() + 1, bucket.variance.end());
  }
  columns.mean.rows = columns.variance.rows = columns.size();
  columns.mean.cols = columns.variance.cols = std::ssize(model.alpha);
  return columns;
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

// The profile at each query's bucket, averaged over the queries at positions [low, high).
double profile_mean(const CentredRows& queries, const std::vector<ProfilePoint>& profile,
                    double low, double high) {
  double sum = 0;
  double count = 0;
  for (std::size_t i = 0; i < queries.source.position.size(); ++i) {
    const auto t = queries.source.position[i];
    if (t < low || t >= high) continue;
    const auto point = std::lower_bound(
        profile.begin(), profile.end(), queries.source.bucket[i],
        [](const ProfilePoint& p, std::int32_t bucket) { return p.q_bucket < bucket; });
    if (point == profile.end() || std::isnan(point->mean.ap)) continue;
    sum += point->mean.ap;
    count += 1;
  }
  return count > 0 ? sum / count : kNan;
}

double context_length(const CentredRows& queries, const CentredRows& keys) {
  std::int32_t longest = 0;
  for (const auto t : queries.source.position) longest = std::max(longest, t);
  for (const auto t : keys.source.position) longest = std::max(longest, t);
  return longest + 1.0;
}

void summarise_profile(const CentredRows& queries, const CentredRows& keys,
                       PlasticityResult& result) {
  const double length = context_length(queries, keys);
  result.ap_profile_overall = profile_mean(queries, result.profile, 0, length);
  result.ap_first20 = profile_mean(queries, result.profile, 0, 0.2 * length);
  result.ap_last20 = profile_mean(queries, result.profile, 0.8 * length, length);
  result.ap_drop = result.ap_first20 - result.ap_last20;
}

void weigh_components(PlasticityResult& result) {
  double total = 0;
  for (const double r2 : result.component_r2) total += std::max(0.0, r2);
  const double uniform = 1 / static_cast<double>(result.component_r2.size());
  for (const double r2 : result.component_r2)
    result.component_weight.push_back(total > 0 ? std::max(0.0, r2) / total : uniform);
}

// Columns of the table become points of the profile; points without a column stay empty.
ProfileGroups at_points(const ProfileGroups& columns, std::span<const std::int64_t> column_of) {
  const auto size = static_cast<std::size_t>(columns.groups) * column_of.size();
  ProfileGroups points{columns.groups, std::vector<double>(size), std::vector<double>(size)};
  if (columns.groups == 0) return points;
  const auto width = columns.sum.size() / static_cast<std::size_t>(columns.groups);
  for (std::size_t g = 0; g < static_cast<std::size_t>(columns.groups); ++g)
    for (std::size_t i = 0; i < column_of.size(); ++i) {
      if (column_of[i] < 0) continue;
      const auto from = g * width + static_cast<std::size_t>(column_of[i]);
      points.sum[g * column_of.size() + i] = columns.sum[from];
      points.weight[g * column_of.size() + i] = columns.weight[from];
    }
  return points;
}

}  // namespace

PlasticityResult attention_plasticity(const CentredRows& queries, const CentredRows& keys,
                                      const PlasticityOptions& options) {
  QueryModel model = fit_queries(queries, keys);
  PlasticityResult result;
  result.r2_pos = model.r_squared_mean;
  result.beta_norm = model.beta_norm;
  result.r2_scalar = model.scalar_r_squared;
  result.mae_baseline = model.mae_baseline;
  result.mae_projection = model.mae_projection;
  result.mae_ratio = model.mae_projection / model.mae_baseline;
  result.normality = residual_normality(model, options.p_alpha);
  const SortedKeys sorted = sort_keys(keys, model);
  using Kind = PlasticityOptions::QueryModelKind;
  const BucketRanges ranges =
      options.sampler ? BucketRanges(*options.sampler) : BucketRanges(queries.source, keys.source);
  result.table = bucket_table(sorted, linear_columns(model), ranges, options);
  result.ap_overall = mean_of_table(result.table);
  const QueryColumns columns =
      options.profile_model == Kind::linear ? linear_columns(model) : bucket_columns(model);
  const TextGroups groups = options.text_groups.empty() ? TextGroups(queries.source, keys.source)
                                                        : TextGroups(options.text_groups);
  auto tables = profile_tables(sorted, columns, groups, options);
  std::vector<std::int64_t> column_of;  // (points), -1: none
  for (const auto& bucket : model.buckets) {
    const auto at = std::lower_bound(columns.bucket.begin(), columns.bucket.end(), bucket.bucket);
    const bool known = at != columns.bucket.end() && *at == bucket.bucket;
    ProfilePoint point{bucket.bucket, bucket.position, bucket.count, {kNan, kNan, 0, 0}};
    column_of.push_back(known ? at - columns.bucket.begin() : -1);
    if (known) point.mean = tables.profile[static_cast<std::size_t>(at - columns.bucket.begin())];
    result.profile.push_back(point);
  }
  result.profile_groups = at_points(tables.groups, column_of);
  result.heatmap = std::move(tables.heatmap);
  summarise_profile(queries, keys, result);
  result.component_r2 = std::move(model.r_squared);
  weigh_components(result);
  return result;
}

}  // namespace qkscope
