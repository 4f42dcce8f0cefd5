#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/methods/plasticity.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"

namespace qkscope {
namespace {

using ModelKind = PlasticityOptions::QueryModelKind;

void append_gaussian(std::span<const double> mean, std::span<const double> variance,
                     QueryGaussians& columns) {
  columns.mean.data.insert(columns.mean.data.end(), mean.begin(), mean.end());
  columns.variance.data.insert(columns.variance.data.end(), variance.begin(), variance.end());
  columns.mean.cols = columns.variance.cols = std::ssize(mean);
  columns.mean.rows = ++columns.variance.rows;
}

// Query models with mean alpha + beta t and constant variance, at the mean position t of each bin
// or bucket. `number`: pointer to the member that holds the index of a bin or bucket. z scores are
// linear in t, so interpolating between two columns is exact.
template <typename Bins, typename Number>
QueryModelsAtPoints linear_models(const LinearQueryModel& model, const Bins& bins, Number number) {
  QueryModelsAtPoints side;
  if (bins.empty()) return side;
  const double low = bins.front().position;
  const double high = bins.back().position;
  for (const double t : {low, high}) {
    std::vector<double> mean(model.alpha);
    add_scaled(t, model.beta, mean);
    append_gaussian(mean, model.residual_variance, side.columns);
  }
  for (const auto& bin : bins)
    side.points.add_point(bin.*number, bin.position, 0,
                          high > low ? (bin.position - low) / (high - low) : 0);
  return side;
}

// Returns the mean and variance of the queries in each position bucket. Along the drift axis, both
// come from the linear model, evaluated at the mean position of the bucket's queries.
QueryModelsAtPoints query_models_of_buckets(const LinearQueryModel& model,
                                            std::span<const QueryBin> bins) {
  QueryModelsAtPoints side;
  std::vector<std::int32_t> numbers;
  for (const auto& bucket : model.buckets) {
    if (bucket.variance.empty()) continue;
    auto mean = bucket.mean;
    auto variance = bucket.variance;
    mean[0] = model.alpha[0] + model.beta[0] * bucket.position;
    variance[0] = model.residual_variance[0];
    append_gaussian(mean, variance, side.columns);
    numbers.push_back(bucket.bucket);
  }
  for (const auto& bin : bins) {
    const auto found = std::lower_bound(numbers.begin(), numbers.end(), bin.bucket);
    if (found == numbers.end() || *found != bin.bucket) continue;
    side.points.add_point(bin.bin, bin.position, static_cast<std::int32_t>(found - numbers.begin()),
                          0);
  }
  return side;
}

// Means and variances of the buckets, interpolated between their mean positions. Drift within a
// bucket is subtracted from its variance along the drift axis.
QueryModelsAtPoints interpolated_bucket_models(const LinearQueryModel& model,
                                               std::span<const QueryBin> bins,
                                               const BucketRanges& buckets) {
  QueryModelsAtPoints side;
  std::vector<double> position;
  for (const auto& bucket : model.buckets) {
    if (bucket.variance.empty()) continue;
    const auto range = buckets.range(bucket.bucket);
    const double tokens = static_cast<double>(range.end - range.begin);
    auto variance = bucket.variance;
    variance[0] = std::max(
        kVarianceFloor, variance[0] - model.beta[0] * model.beta[0] * (tokens * tokens - 1) / 12);
    append_gaussian(bucket.mean, variance, side.columns);
    position.push_back(bucket.position);
  }
  if (position.empty()) return side;
  const auto last = static_cast<std::int32_t>(position.size()) - 1;
  for (const auto& bin : bins) {
    const auto above = std::upper_bound(position.begin(), position.end(), bin.centre());
    const auto column = std::clamp(static_cast<std::int32_t>(above - position.begin()) - 1, 0,
                                   std::max(0, last - 1));
    const auto at = as_index(column);
    side.points.add_point(
        bin.bin, bin.position, column,
        last == 0 ? 0 : (bin.centre() - position[at]) / (position[at + 1] - position[at]));
  }
  return side;
}

LocalFitKnots place_local_fit_knots(std::span<const QueryBin> bins, const BucketRanges& buckets) {
  LocalFitKnots knots;
  const auto add = [&](const QueryBin& bin) {
    const auto range = buckets.range(bin.bucket);
    knots.position.push_back(bin.centre());
    knots.half_width.push_back(static_cast<double>(range.end - range.begin));
  };
  for (std::size_t i = 0; i < bins.size(); ++i) {
    const bool last = i + 1 == bins.size();
    if (i == 0 || last ||
        bins[i + 1].centre() > knots.position.back() + 0.5 * knots.half_width.back())
      add(bins[i]);
  }
  for (const auto& bin : bins) {
    const auto above = std::upper_bound(knots.position.begin(), knots.position.end(), bin.centre());
    const auto at = as_index(above - knots.position.begin()) - 1;
    knots.knot.push_back(static_cast<std::int32_t>(at));
    knots.fraction.push_back(above == knots.position.end()
                                 ? 0
                                 : (bin.centre() - knots.position[at]) /
                                       (knots.position[at + 1] - knots.position[at]));
  }
  return knots;
}

std::vector<RowWindow> local_fit_windows(const LocalFitKnots& knots, const SortedQueries& queries) {
  std::vector<RowWindow> windows;
  for (std::size_t k = 0; k < knots.position.size(); ++k)
    windows.push_back(
        epanechnikov_fit_window(queries.position, knots.position[k], knots.half_width[k]));
  return windows;
}

// Returns a fit window with equal weights over the rows for which `matches` returns true.
template <typename Matches>
RowWindow matching_rows_window(const SortedQueries& queries, double centre, int degree,
                               const Matches& matches) {
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < queries.position.size(); ++i)
    if (matches(i)) rows.push_back(static_cast<std::int64_t>(i));
  return uniform_fit_window(std::move(rows), centre, degree);
}

// Copies the means and variances of the fits into the Gaussian query models, one per column.
void copy_fits(const WindowFits& fits, const SortedQueries& queries, QueryGaussians& columns) {
  columns.mean = fits.mean;
  columns.variance = fits.variance;
  for (std::int64_t c = 0; c < fits.mean.rows; ++c)
    add_scaled(1, queries.mean, {columns.mean.row(c), queries.mean.size()});
}

std::vector<RowWindow> bin_fit_windows(std::span<const QueryBin> bins, const SortedQueries& queries,
                                       QueryEvaluationPoints& points) {
  std::vector<RowWindow> windows;
  for (std::size_t b = 0; b < bins.size(); ++b) {
    if (bins[b].queries < 2) continue;
    points.add_point(bins[b].bin, bins[b].position, static_cast<std::int32_t>(windows.size()), 0);
    windows.push_back(uniform_fit_window(queries.rows_of_bin[b], bins[b].position, 0));
  }
  return windows;
}

std::vector<RowWindow> bucket_fit_windows(const LinearQueryModel& model,
                                          const SortedQueries& queries) {
  std::vector<RowWindow> windows;
  for (const auto& bucket : model.buckets)
    if (!bucket.variance.empty())
      windows.push_back(matching_rows_window(queries, bucket.position, 0, [&](std::size_t i) {
        return queries.bucket[i] == bucket.bucket;
      }));
  return windows;
}

// Returns a window for each centre. Every window holds all rows with weight 1: a global linear
// regression on position, evaluated at the centre.
std::vector<RowWindow> line_fit_windows(std::span<const double> centres,
                                        const SortedQueries& queries) {
  std::vector<RowWindow> windows;
  for (const double centre : centres)
    windows.push_back(matching_rows_window(queries, centre, 1, [](std::size_t) { return true; }));
  return windows;
}

void add_covariances(const SortedQueries& queries, std::span<const RowWindow> windows,
                     const JackknifeFits& fits, QueryGaussians& columns) {
  WindowFits all = fits.fits_without_group(-1);
  all.variance = columns.variance;
  for (std::int64_t c = 0; c < columns.size(); ++c)
    columns.cholesky.push_back(shrunk_covariance_cholesky(queries.vectors, queries.position,
                                                          windows[as_index(c)], all, c));
}

}  // namespace

SortedQueries sort_queries_by_position(const CentredRows& queries, const LinearQueryModel& model,
                                       const PlasticityGrid& grid, const JackknifeGroups& texts) {
  const RowsView& source = queries.source;
  const DistinctIntegers bins(plasticity_bins_of_rows(grid, source));
  std::vector<std::int64_t> order(as_index(queries.count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, {}, [&](auto row) { return source.position[as_index(row)]; });
  SortedQueries sorted;
  sorted.rows_of_bin.resize(bins.numbers.size());
  sorted.vectors = rotate_centred_rows(queries, model, order);
  for (const auto row : order) {
    const auto at = as_index(row);
    sorted.rows_of_bin[as_index(bins.place[at])].push_back(std::ssize(sorted.position));
    sorted.position.push_back(source.position[at]);
    sorted.bucket.push_back(source.bucket[at]);
    sorted.group.push_back(texts.group_of(source.example(at)));
  }
  sorted.mean = to_model_basis(queries.mean, model);
  return sorted;
}

std::string to_string(PlasticityOptions::QueryModelKind kind) {
  constexpr const char* kNames[] = {"local", "bin", "bucket", "linear"};
  return translate_exceptions(
      [&]() -> std::string { return kNames[static_cast<std::size_t>(kind)]; });
}

WindowFits QueryModelsByBin::fits_without_group(int group) const {
  WindowFits result = fits->fits_without_group(group);
  if (!line) return result;
  const WindowFits along = line->fits_without_group(group);
  for (std::int64_t c = 0; c < result.mean.rows; ++c) {
    result.mean(c, 0) = along.mean(c, 0);
    result.variance(c, 0) = along.variance(c, 0);
  }
  return result;
}

QueryModelsAtPoints evaluate_linear_model_at_buckets(const LinearQueryModel& model) {
  return linear_models(model, model.buckets, &QueryBucketGaussian::bucket);
}

QueryModelsByBin fit_query_models_by_bin(const LinearQueryModel& model,
                                         std::span<const QueryBin> bins,
                                         const BucketRanges& buckets, const SortedQueries* queries,
                                         int groups, const PlasticityOptions& options) {
  const auto kind = options.profile_model;
  QueryModelsByBin result;
  if (kind == ModelKind::linear) result.side = linear_models(model, bins, &QueryBin::bin);
  if (kind == ModelKind::bucket) result.side = query_models_of_buckets(model, bins);
  if (queries == nullptr) {
    if (kind == ModelKind::local) result.side = interpolated_bucket_models(model, bins, buckets);
    return result;
  }
  const auto fit = [&](std::span<const RowWindow> windows) {
    return JackknifeFits(queries->vectors, queries->position, queries->group, groups, windows);
  };
  result.knots = place_local_fit_knots(bins, buckets);
  auto windows = local_fit_windows(result.knots, *queries);
  result.fits.emplace(fit(windows));
  const WindowFits local = result.fits->fits_without_group(-1);
  result.slope = local.slope;
  auto& columns = result.side.columns;
  if (kind == ModelKind::local) {
    if (std::isnan(local.variance.data.front())) return result;  // fewer than two queries
    copy_fits(local, *queries, columns);
    for (std::size_t i = 0; i < bins.size(); ++i)
      result.side.points.add_point(bins[i].bin, bins[i].position, result.knots.knot[i],
                                   result.knots.fraction[i]);
  } else {
    windows =
        kind == ModelKind::bin ? bin_fit_windows(bins, *queries, result.side.points)
        : kind == ModelKind::bucket
            ? bucket_fit_windows(model, *queries)
            : line_fit_windows(std::vector{bins.front().position, bins.back().position}, *queries);
    result.fits.emplace(fit(windows));
    if (kind == ModelKind::bin) copy_fits(result.fits->fits_without_group(-1), *queries, columns);
    if (kind == ModelKind::bucket)
      result.line.emplace(fit(line_fit_windows(to_vector(windows, &RowWindow::centre), *queries)));
  }
  if (options.covariance == PlasticityOptions::Covariance::full)
    add_covariances(*queries, windows, *result.fits, columns);
  return result;
}

}  // namespace qkscope
