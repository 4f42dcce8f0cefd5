#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "analysis/methods/plasticity.h"
#include "base/core/cpu_target.h"
#include "base/core/numbers.h"
#include "base/numerics/normal.h"
#include "base/numerics/random.h"

namespace qkscope {
namespace {

// Derivative of the plasticity 4 Phi(z) (1 - Phi(z)) with respect to z.
double plasticity_derivative(double z) {
  const double density = std::exp(-0.5 * z * z) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return 4 * density * (1 - 2 * normal_cdf(z));
}

// Gradient of the mean plasticity at a query point with respect to the query mean and variance.
struct Gradient {
  std::vector<double> mean;      // (dim)
  std::vector<double> variance;  // (dim)
};

class GradientEstimator {
 public:
  GradientEstimator(const GaussianPlasticityProfile& source, const PlasticityOptions& options)
      : source_(source), options_(options), points_(source.model.side.points) {}

  QKSCOPE_VECTORIZE_FOR_CPU Gradient estimate_gradient(std::int64_t point) const {
    const auto dim = as_index(source_.keys.dim);
    const auto& columns = source_.model.side.columns;
    const std::vector<double> mean = interpolate_columns(columns.mean, point);
    const std::vector<double> variance = interpolate_columns(columns.variance, point);
    // float32 suffices: the gradients are averages over a sample of pairs.
    std::vector<float> delta(dim);
    std::vector<float> squares(dim);
    std::vector<float> by_mean(dim);  // sums over pairs
    std::vector<float> by_variance(dim);
    const std::vector<KeyPair> pairs = sample_pairs(point);
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      if (p + kAhead < pairs.size()) {
        prefetch_key(source_.keys.row(pairs[p + kAhead].first), dim);
        prefetch_key(source_.keys.row(pairs[p + kAhead].second), dim);
      }
      const float* const x = source_.keys.row(pairs[p].first);
      const float* const y = source_.keys.row(pairs[p].second);
      for (std::size_t j = 0; j < dim; ++j) {
        delta[j] = x[j] - y[j];
        squares[j] = delta[j] * delta[j];
      }
      const double v = dot(squares, variance);
      if (!(v > 0)) continue;
      const double inverse = 1 / std::sqrt(v);
      const double z = dot(delta, mean) * inverse;
      const double slope = plasticity_derivative(z);
      const auto per_delta = static_cast<float>(slope * inverse);
      const auto per_square = static_cast<float>(-0.5 * slope * z / v);
      for (std::size_t j = 0; j < dim; ++j) {
        by_mean[j] += per_delta * delta[j];
        by_variance[j] += per_square * squares[j];
      }
    }
    Gradient gradient{{by_mean.begin(), by_mean.end()}, {by_variance.begin(), by_variance.end()}};
    for (std::size_t j = 0; j < dim && !pairs.empty(); ++j) {
      gradient.mean[j] /= static_cast<double>(pairs.size());
      gradient.variance[j] /= static_cast<double>(pairs.size());
    }
    return gradient;
  }

  // Interpolates rows of `columns` (the means or variances of query models) at a query position.
  std::vector<double> interpolate_columns(const Matrix& columns, std::int64_t point) const {
    const auto at = as_index(point);
    const auto column = points_.column[at];
    const double fraction = points_.fraction[at];
    std::vector<double> values(columns.row(column), columns.row(column) + columns.cols);
    if (fraction == 0) return values;
    for (double& x : values) x *= 1 - fraction;
    add_scaled(fraction, {columns.row(column + 1), values.size()}, values);
    return values;
  }

 private:
  static constexpr std::size_t kAhead = 4;  // pairs

  // Prefetches a key, because sampled keys are scattered in memory.
  static void prefetch_key(const float* key, std::size_t dim) {
    constexpr std::size_t kLine = 16;  // floats per cache line
    for (std::size_t j = 0; j < dim; j += kLine) __builtin_prefetch(key + j);
  }

  // Returns a systematic sample of replicate_pairs pairs, at equal steps from a random start, or
  // all pairs if there are fewer.
  std::vector<KeyPair> sample_pairs(std::int64_t point) const {
    std::vector<KeyPair> pairs;
    std::int64_t total = 0;
    for (std::int64_t e = 0; e < source_.sorted.example_count(); ++e)
      total += source_.eligible.key_range(e, point).key_pair_count();
    if (total == 0) return pairs;
    const double step =
        std::max(1.0, static_cast<double>(total) / static_cast<double>(options_.replicate_pairs));
    Random random(options_.seed ^ (static_cast<std::uint64_t>(point + 1) << 32));
    double next = step > 1 ? step * random.uniform() : 0;
    std::int64_t before = 0;
    for (std::int64_t e = 0; e < source_.sorted.example_count(); ++e) {
      const KeyRange range = source_.eligible.key_range(e, point);
      for (; next < static_cast<double>(before + range.key_pair_count()); next += step)
        pairs.push_back(
            range.nth_pair(std::min(static_cast<std::int64_t>(next), total - 1) - before));
      before += range.key_pair_count();
    }
    return pairs;
  }

  const GaussianPlasticityProfile& source_;
  const PlasticityOptions& options_;
  const QueryEvaluationPoints& points_;
};

// Change of the profile when the queries of one group are left out: (groups, points). Gradients are
// computed at points that coincide with a column, and the change is interpolated linearly between
// these points. If the model has at most two columns, gradients are computed at every point.
Matrix profile_changes_without_group(const GaussianPlasticityProfile& source,
                                     const PlasticityOptions& options) {
  const auto& points = source.model.side.points;
  const GradientEstimator estimator(source, options);
  std::vector<std::int64_t> anchors;
  std::vector<Gradient> gradients;
  for (std::int64_t p = 0; p < points.size(); ++p)
    if (points.fraction[as_index(p)] == 0 || p + 1 == points.size() ||
        source.model.side.columns.size() <= 2) {
      anchors.push_back(p);
      gradients.push_back(estimator.estimate_gradient(p));
    }
  Matrix changes(source.texts.size(), points.size());
  const WindowFits all = source.model.fits_without_group(-1);
  for (int g = 0; g < source.texts.size(); ++g) {
    WindowFits moved = source.model.fits_without_group(g);
    add_scaled(-1, all.mean.data, moved.mean.data);
    add_scaled(-1, all.variance.data, moved.variance.data);
    double* const change = changes.row(g);
    for (std::size_t a = 0; a < anchors.size(); ++a) {
      const auto at = anchors[a];
      change[at] = dot(gradients[a].mean, estimator.interpolate_columns(moved.mean, at)) +
                   dot(gradients[a].variance, estimator.interpolate_columns(moved.variance, at));
      if (a == 0) continue;
      const auto before = anchors[a - 1];
      for (auto p = before + 1; p < at; ++p)
        change[p] = change[before] + points.fraction[as_index(p)] * (change[at] - change[before]);
    }
  }
  return changes;
}

// Number of queries that remain in each bin when one group of texts is left out (jackknife), shape
// (groups, bins).
std::vector<double> remaining_queries(const GaussianPlasticityProfile& source) {
  const auto bins = source.bins.size();
  std::vector<double> left(as_index(source.texts.size()) * bins);
  for (std::size_t at = 0; at < left.size(); ++at)
    left[at] = static_cast<double>(source.bins[at % bins].queries);
  for (std::size_t b = 0; b < bins; ++b)
    for (const auto row : source.queries.rows_of_bin[b])
      left[as_index(source.queries.group[as_index(row)]) * bins + b] -= 1;
  return left;
}

}  // namespace

ProfileReplicates compute_plasticity_replicates(const GaussianPlasticityProfile& source,
                                                const PlasticityOptions& options) {
  const auto bins = source.bins.size();
  const auto groups = as_index(source.texts.size());
  const auto& points = source.model.side.points.bin;
  ProfileReplicates result{
      source.texts.size(), std::vector<double>(groups * bins, kNan), {}, remaining_queries(source)};
  if (points.empty()) return result;
  const Matrix changes = profile_changes_without_group(source, options);
  std::size_t point = 0;
  for (std::size_t b = 0; b < bins && point < points.size(); ++b) {
    if (points[point] != source.bins[b].bin) continue;
    for (std::size_t g = 0; g < groups; ++g) {
      if (result.queries[g * bins + b] == 0) continue;
      result.value[g * bins + b] =
          source.tables.groups.mean_without_group(g, point) +
          changes(static_cast<std::int64_t>(g), static_cast<std::int64_t>(point));
    }
    ++point;
  }
  return result;
}

}  // namespace qkscope
