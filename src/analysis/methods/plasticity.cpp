#include "analysis/methods/plasticity.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/numerics/sample_statistics.h"

namespace qkscope {
namespace {

ResidualNormality residual_normality(const LinearQueryModel& model, double p_alpha) {
  if (model.normality.empty()) return {kNan, kNan, kNan, kNan, kNan, kNan, kNan};
  const auto& first = model.normality.front();
  ResidualNormality result{first.skew, first.excess_kurtosis, first.ks_p, kNan, kNan, kNan, kNan};
  const auto others = std::span(model.normality).subspan(1);
  auto skews = to_vector(others, [](const auto& noise) { return std::fabs(noise.skew); });
  auto kurtoses =
      to_vector(others, [](const auto& noise) { return std::fabs(noise.excess_kurtosis); });
  auto ps = to_vector(others, &NormalityStatistics::ks_p);
  const auto known = std::ranges::count_if(ps, [](double p) { return !std::isnan(p); });
  const auto below = std::ranges::count_if(ps, [&](double p) { return p < p_alpha; });
  result.median_abs_skew = median(skews);
  result.median_abs_kurtosis = median(kurtoses);
  result.median_ks_p = median(ps);
  if (known > 0) result.share_below_alpha = to_double(below) / to_double(known);
  return result;
}

double mean_bucket_plasticity(const std::vector<BucketCell>& table) {
  double sum = 0;
  double count = 0;
  for (const auto& cell : table) {
    if (std::isnan(cell.mean.ap)) continue;
    sum += cell.mean.ap;
    count += 1;
  }
  return count > 0 ? sum / count : kNan;
}

void set_component_weights(PlasticityResult& result) {
  double total = 0;
  for (const double r2 : result.component_r2) total += std::max(0.0, r2);
  const double uniform = 1 / static_cast<double>(result.component_r2.size());
  for (const double r2 : result.component_r2)
    result.component_weight.push_back(total > 0 ? std::max(0.0, r2) / total : uniform);
}

// Adds one point per bin to the plasticity profile; NaN in bins with too few queries for a fit.
void add_profile_points(std::span<const QueryBin> bins, const QueryEvaluationPoints& points,
                        const PlasticityProfileTables& tables, PlasticityResult& result) {
  std::size_t next = 0;  // index into points
  for (const auto& bin : bins) {
    ProfilePoint& point = result.profile.emplace_back();
    point.bin = bin.bin;
    point.low = bin.low;
    point.high = bin.high;
    point.position = bin.position;
    point.queries = bin.queries;
    point.mean = {kNan, kNan, 0, 0};
    if (next == points.bin.size() || points.bin[next] != bin.bin) continue;
    point.mean = tables.profile[next++];
  }
}

// Returns the keys sorted by text and bin of positions; `by_bucket` itself if it has that order.
SortedKeys sort_keys_by_bin(const RowsView& keys, const PlasticityGrid& grid,
                            SortedKeys by_bucket) {
  if (grid.bins == 0) return by_bucket;
  bool ascending = true;
  for (std::size_t i = 0; i < by_bucket.bin.size(); ++i) {
    by_bucket.bin[i] = grid.bin_of_position(by_bucket.position[i]);
    ascending = ascending && (i == 0 || by_bucket.example[i] != by_bucket.example[i - 1] ||
                              by_bucket.bin[i] >= by_bucket.bin[i - 1]);
  }
  if (ascending) return by_bucket;
  return sort_keys_by_text_and_bin(keys, plasticity_bins_of_rows(grid, keys));
}

}  // namespace

PlasticityResult plasticity_of_query_model(const LinearQueryModel& model,
                                           const PlasticityOptions& options) {
  PlasticityResult result;
  result.r2_pos = model.r_squared_mean;
  result.beta_norm = model.beta_norm;
  result.r2_scalar = model.scalar_r_squared;
  result.mae_baseline = model.mae_baseline;
  result.mae_projection = model.mae_projection;
  result.mae_ratio = model.mae_projection / model.mae_baseline;
  result.normality = residual_normality(model, options.p_alpha);
  result.component_r2 = model.r_squared;
  set_component_weights(result);
  return result;
}

PlasticityResult plasticity_of_queries_and_keys(const ModelledQueries& queries,
                                                const CentredRows& keys,
                                                const PlasticityOptions& options) {
  const LinearQueryModel& model = queries.model;
  PlasticityResult result = plasticity_of_query_model(model, options);
  const BucketRanges buckets = options.sampler ? BucketRanges(*options.sampler)
                                               : BucketRanges(queries.positions, keys.source);
  const PlasticityGrid grid =
      choose_plasticity_grid(queries.positions, keys.source, buckets, queries.count, options);
  result.profile_bins = grid.bins;
  result.profile_context = static_cast<double>(grid.context);
  const auto bins = occupied_query_bins(grid, queries.positions, buckets, queries.times);
  const JackknifeGroups texts = options.text_groups.empty()
                                    ? JackknifeGroups(queries.positions, keys.source)
                                    : JackknifeGroups(options.text_groups);
  std::optional<SortedQueries> rows;
  if (queries.rows) rows.emplace(sort_queries_by_position(*queries.rows, model, grid, texts));
  const QueryModelsByBin profile =
      fit_query_models_by_bin(model, bins, buckets, rows ? &*rows : nullptr, texts.size(), options);
  const SortedKeys by_bucket = sort_keys_by_text_and_bin(keys.source, keys.source.bucket);
  const SortedKeys by_bin = sort_keys_by_bin(keys.source, grid, by_bucket);
  const FloatMatrix turned_keys = rotate_and_scale_keys(keys, model, by_bin.row);
  const KeyTile all_keys(turned_keys);
  const EligibleKeys eligible(by_bin, profile.side.points, options.sliding_window);
  auto tables = compute_plasticity_tables(
      {all_keys, keys, model, by_bucket, by_bin, evaluate_linear_model_at_buckets(model),
       profile.side, eligible, buckets, texts, result.profile_context},
      options);
  result.table = std::move(tables.buckets);
  result.ap_overall = mean_bucket_plasticity(result.table);
  add_profile_points(bins, profile.side.points, tables.profile, result);
  if (rows) {
    const GaussianPlasticityProfile computed{*rows,  profile,  bins,  all_keys,
                                             by_bin, eligible, texts, tables.profile};
    if (options.replicates)
      result.profile_without = compute_plasticity_replicates(computed, options);
    add_model_free_profile(computed, options, result);
  }
  summarize_plasticity_profile(options, result);
  result.heatmap = std::move(tables.profile.heatmap);
  return result;
}

PlasticityResult attention_plasticity(const CentredRows& queries, const CentredRows& keys,
                                      std::vector<double> signs, const PlasticityOptions& options) {
  using Kind = PlasticityOptions::QueryModelKind;
  auto model = fit_query_model(queries, std::move(signs), options.profile_model == Kind::bucket);
  const ModelledQueries modelled{std::move(model), queries.source, {}, queries.count, &queries};
  return plasticity_of_queries_and_keys(modelled, keys, options);
}

}  // namespace qkscope
