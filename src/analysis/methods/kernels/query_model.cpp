#include "analysis/methods/kernels/query_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/core/cpu_target.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/numerics/products.h"

namespace qkscope {
namespace {

void regress_dimensions_on_position(const Moments& queries, LinearQueryModel& model,
                                    std::vector<double>& oriented_beta) {
  const double tt = queries.position_scatter;
  for (std::size_t j = 0; j < model.sign.size(); ++j) {
    const double xt = queries.cross_scatter[j];
    const double xx = queries.scatter.data[j * model.sign.size() + j];
    oriented_beta.push_back(tt > 0 ? model.sign[j] * xt / tt : 0);
    model.r_squared.push_back(tt > 0 && xx > 0 ? xt * xt / (xx * tt) : 0);
    model.r_squared_mean += model.r_squared.back() / static_cast<double>(model.sign.size());
  }
  model.beta_norm = norm(oriented_beta);
}

// Regresses y = log2(position + 1) on the centred query coordinates along the drift axis. Sets R^2
// and the mean absolute error without and with the regression.
void regress_position_on_drift(std::vector<double> y, std::span<const double> drift,
                               LinearQueryModel& model) {
  model.scalar_r_squared = model.mae_baseline = model.mae_projection = kNan;
  const auto n = static_cast<double>(y.size());
  const double mean = sum(y) / n;
  double baseline = 0;
  for (double& value : y) {
    value -= mean;
    baseline += std::fabs(value) / n;
  }
  const double yy = dot(y, y);
  const double ss = dot(drift, drift);
  const double sy = dot(drift, y);
  if (!(yy > 0)) return;
  model.mae_baseline = baseline;
  if (!(model.beta_norm > 0) || !(ss > 0)) return;
  model.scalar_r_squared = sy * sy / (ss * yy);
  model.mae_projection = 0;
  for (std::size_t i = 0; i < y.size(); ++i)
    model.mae_projection += std::fabs(y[i] - sy / ss * drift[i]) / n;
}

// Fits a linear regression of queries on position. `signs`: signs of the key means, shape (dim).
LinearQueryModel fit_linear_model(const Moments& queries, std::vector<double> signs) {
  LinearQueryModel model;
  model.sign = std::move(signs);
  std::vector<double> direction;
  regress_dimensions_on_position(queries, model, direction);
  if (model.beta_norm > 0) {
    for (double& x : direction) x /= model.beta_norm;
    std::vector<double> first_axis(direction.size());
    first_axis.front() = 1;
    model.reflection = householder_vector(first_axis, direction);
  }
  const auto mean = to_model_basis(queries.mean, model);
  model.beta = to_model_basis(queries.cross_scatter, model);
  for (double& x : model.beta) x = queries.position_scatter > 0 ? x / queries.position_scatter : 0;
  for (std::size_t j = 0; j < mean.size(); ++j)
    model.alpha.push_back(mean[j] - model.beta[j] * queries.position_mean);
  return model;
}

// Returns the diagonal of the scatter matrix C in rotated coordinates, H S C S H, where S is the
// diagonal sign matrix and H = I - 2 w w^T is the Householder reflection.
std::vector<double> rotated_scatter_diagonal(const Matrix& scatter, const LinearQueryModel& model) {
  const auto dim = model.sign.size();
  std::vector<double> diagonal;
  for (std::size_t j = 0; j < dim; ++j) diagonal.push_back(scatter.data[j * dim + j]);
  if (model.reflection.empty()) return diagonal;
  std::vector<double> signed_w(model.reflection);
  for (std::size_t j = 0; j < dim; ++j) signed_w[j] *= model.sign[j];
  auto along = multiply(scatter, signed_w);
  for (std::size_t j = 0; j < dim; ++j) along[j] *= model.sign[j];
  const double both = dot(along, model.reflection);
  for (std::size_t j = 0; j < dim; ++j) {
    const double w = model.reflection[j];
    diagonal[j] = std::max(0.0, diagonal[j] - 4 * w * along[j] + 4 * w * w * both);
  }
  return diagonal;
}

// Regresses log2(position + 1) on the drift coordinate from sums instead of rows; mae_projection
// stays NaN. `drift_scatter` is the scatter of the drift coordinate.
void regress_position_on_drift(const LogPositionMoments& u, double drift_scatter,
                               LinearQueryModel& model) {
  model.scalar_r_squared = model.mae_baseline = model.mae_projection = kNan;
  if (!(u.scatter > 0)) return;
  model.mae_baseline = u.mean_deviation;
  if (!(model.beta_norm > 0) || !(drift_scatter > 0)) return;
  const double along = to_model_basis(u.cross_scatter, model).front();
  model.scalar_r_squared = along * along / (drift_scatter * u.scatter);
}

QueryBucketGaussian rotate_bucket_moments(const QueryBucketMoments& from,
                                          const LinearQueryModel& model) {
  QueryBucketGaussian bucket{
      from.bucket, from.count, from.position, to_model_basis(from.mean, model), {}};
  if (from.count < 2 || from.scatter.data.empty()) return bucket;
  bucket.variance = rotated_scatter_diagonal(from.scatter, model);
  for (double& x : bucket.variance)
    x = std::max(kVarianceFloor, x / static_cast<double>(from.count - 1));
  return bucket;
}

// Sets the number and mean position of the queries in each bucket. If `variances` is true, sets the
// mean and variance of the query vectors in each bucket as well.
void set_bucket_statistics(const CentredRows& queries, bool variances, LinearQueryModel& model) {
  const DistinctIntegers buckets(queries.source.bucket);
  std::vector<std::vector<std::int64_t>> members(buckets.numbers.size());
  for (std::size_t i = 0; i < buckets.place.size(); ++i)
    members[as_index(buckets.place[i])].push_back(static_cast<std::int64_t>(i));
  for (std::size_t b = 0; b < members.size(); ++b) {
    const auto count = std::ssize(members[b]);
    QueryBucketMoments bucket{buckets.numbers[b], count, 0, queries.mean, {}};
    for (const auto row : members[b]) bucket.position += queries.source.position[as_index(row)];
    bucket.position /= static_cast<double>(count);
    if (variances) {
      RowGroupSums sums = sum_row_group(queries, members[b]);
      for (double& x : sums.sum) x /= static_cast<double>(count);
      for (std::int64_t j = 0; j < queries.dim(); ++j)
        add_scaled(-static_cast<double>(count) * sums.sum[as_index(j)], sums.sum,
                   {sums.scatter.row(j), sums.sum.size()});
      add_scaled(1, sums.sum, bucket.mean);
      bucket.scatter = std::move(sums.scatter);
    }
    model.buckets.push_back(rotate_bucket_moments(bucket, model));
  }
}

// Regresses log2(position + 1) on the drift coordinate, and sets variance and normality of the
// residuals (linear drift removed) of each rotated coordinate. Transposes kLines coordinates at a
// time to make residuals contiguous. Rotation is a reflection y - 2 (w . y) w of sign * (x - mean).
QKSCOPE_VECTORIZE_FOR_CPU void set_residual_statistics(const CentredRows& queries,
                                                       LinearQueryModel& model) {
  constexpr std::int64_t kLines = 16;
  const auto n = queries.count;
  std::vector<double> w(model.reflection);
  w.resize(model.sign.size());
  std::vector<double> signed_w(w);
  for (std::size_t j = 0; j < w.size(); ++j) signed_w[j] *= model.sign[j];
  const auto along = project_on_axis(queries, signed_w);
  // A stride of an odd number of cache lines avoids conflict misses.
  Matrix lines(kLines, ((n + 8) / 8 | 1) * 8);
  for (std::int64_t first = 0; first < queries.dim(); first += kLines) {
    const auto count = std::min<std::int64_t>(kLines, queries.dim() - first);
    const auto at = as_index(first);
    const float* x = queries.source.vectors.data() + first;
    for (std::int64_t i = 0; i < n; ++i, x += queries.dim()) {
      const double twice = 2 * along[as_index(i)];
      const double t = queries.source.position[as_index(i)] - queries.position_mean;
      for (std::size_t line = 0; line < as_index(count); ++line) {
        const double y = model.sign[at + line] * (x[line] - queries.mean[at + line]);
        lines(static_cast<std::int64_t>(line), i) =
            y - twice * w[at + line] - model.beta[at + line] * t;
      }
    }
    if (first == 0) {
      std::vector<double> drift(lines.row(0), lines.row(0) + n);  // residual, then drift
      for (std::size_t i = 0; i < drift.size(); ++i)
        drift[i] += model.beta[0] * (queries.source.position[i] - queries.position_mean);
      regress_position_on_drift(to_vector(queries.source.position,
                                          [](double position) { return std::log2(position + 1); }),
                                drift, model);
    }
    for (std::int64_t line = 0; line < count; ++line) {
      const std::span<const double> residuals(lines.row(line), as_index(n));
      const PowerSums powers = central_power_sums(residuals, 0);
      model.residual_variance.push_back(
          std::max(kVarianceFloor, powers.second / static_cast<double>(n - 1)));
      model.normality.push_back(measure_normality(residuals, powers));
    }
  }
}

}  // namespace

std::vector<double> to_model_basis(std::span<const double> x, const LinearQueryModel& model) {
  std::vector<double> rotated(model.sign);
  for (std::size_t j = 0; j < x.size(); ++j) rotated[j] *= x[j];
  apply_householder(rotated, model.reflection);
  return rotated;
}

QKSCOPE_VECTORIZE_FOR_CPU FloatMatrix rotate_centred_rows(const CentredRows& rows,
                                                          const LinearQueryModel& model,
                                                          std::span<const std::int64_t> order) {
  constexpr std::size_t kSums = 16;   // running sums, for a vectorised dot product
  constexpr std::int64_t kAhead = 4;  // rows that are prefetched: `order` scatters them
  constexpr std::size_t kLine = 16;   // floats per cache line
  const auto dim = as_index(rows.dim());
  std::vector<float> w(model.reflection.begin(), model.reflection.end());
  w.resize(dim);
  const std::vector<float> sign(model.sign.begin(), model.sign.end());
  const std::vector<float> mean(rows.mean.begin(), rows.mean.end());
  FloatMatrix turned(order.empty() ? rows.count : std::ssize(order), rows.dim());
  for (std::int64_t i = 0; i < turned.rows; ++i) {
    const auto row = order.empty() ? i : order[as_index(i)];
    const float* const x = rows.source.vectors.data() + as_index(row) * dim;
    if (i + kAhead < std::ssize(order)) {
      const auto later = as_index(order[as_index(i + kAhead)]);
      for (std::size_t j = 0; j < dim; j += kLine)
        __builtin_prefetch(rows.source.vectors.data() + later * dim + j);
    }
    float* const y = turned.row(i);
    for (std::size_t j = 0; j < dim; ++j) y[j] = sign[j] * (x[j] - mean[j]);
    float sums[kSums] = {};
    std::size_t j = 0;
    for (; j + kSums <= dim; j += kSums)
      for (std::size_t k = 0; k < kSums; ++k) sums[k] += y[j + k] * w[j + k];
    for (; j < dim; ++j) sums[0] += y[j] * w[j];
    const float twice = 2 * std::accumulate(std::begin(sums), std::end(sums), 0.0F);
    for (j = 0; j < dim; ++j) y[j] -= twice * w[j];
  }
  return turned;
}

std::vector<double> signs_of_bucket_means(const Matrix& means) {
  std::vector<double> signs(as_index(means.cols));
  for (std::int64_t i = 0; i < means.rows; ++i)
    for (std::size_t j = 0; j < signs.size(); ++j)
      signs[j] += means.row(i)[j] / static_cast<double>(means.rows);
  for (double& value : signs) value = value < 0 ? -1 : 1;
  return signs;
}

std::vector<double> key_mean_signs(const CentredRows& keys) {
  const DistinctIntegers buckets(keys.source.bucket);
  const auto dim = as_index(keys.dim());
  Matrix means(std::ssize(buckets.numbers), keys.dim());
  std::vector<double> count(buckets.numbers.size());
  const float* x = keys.source.vectors.data();
  for (const auto place : buckets.place) {
    count[as_index(place)] += 1;
    add_column_sums(x, 1, {means.row(place), dim});
    x += dim;
  }
  for (std::int64_t i = 0; i < means.rows; ++i)
    for (std::size_t j = 0; j < dim; ++j) means.row(i)[j] /= count[as_index(i)];
  return signs_of_bucket_means(means);
}

LinearQueryModel fit_query_model(const CentredRows& queries, std::vector<double> signs,
                                 bool bucket_variances) {
  LinearQueryModel model = fit_linear_model(queries, std::move(signs));
  set_bucket_statistics(queries, bucket_variances, model);
  set_residual_statistics(queries, model);
  return model;
}

LinearQueryModel fit_query_model_from_moments(const Moments& queries,
                                              const LogPositionMoments& log_positions,
                                              std::vector<double> signs,
                                              std::span<const QueryBucketMoments> buckets) {
  LinearQueryModel model = fit_linear_model(queries, std::move(signs));
  const auto variance = rotated_scatter_diagonal(queries.scatter, model);
  const auto n = static_cast<double>(queries.count);
  for (std::size_t j = 0; j < variance.size(); ++j) {
    const double drift = model.beta[j] * model.beta[j] * queries.position_scatter;
    model.residual_variance.push_back(std::max(kVarianceFloor, (variance[j] - drift) / (n - 1)));
  }
  regress_position_on_drift(log_positions, variance.front(), model);
  for (const auto& bucket : buckets) model.buckets.push_back(rotate_bucket_moments(bucket, model));
  return model;
}

}  // namespace qkscope
