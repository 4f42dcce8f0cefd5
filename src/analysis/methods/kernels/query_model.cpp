#include "analysis/methods/kernels/query_model.h"

#include <algorithm>
#include <cmath>

#include "analysis/methods/kernels/bucket_ranges.h"
#include "analysis/methods/kernels/drift_kernels.h"
#include "base/core/nan.h"
#include "base/numerics/products.h"

namespace qkscope {
namespace {

void regress_dimensions(const Moments& queries, QueryModel& model,
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

// y = log2(position + 1) on the first rotated coordinate; both in the same order.
void predict_position(std::vector<double> y, std::span<const double> drift, QueryModel& model) {
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

// The line through each rotated coordinate, from the moments.
void refit(const Moments& queries, QueryModel& model) {
  const auto mean = rotate(queries.mean, model);
  model.beta = rotate(queries.cross_scatter, model);
  for (double& x : model.beta) x = queries.position_scatter > 0 ? x / queries.position_scatter : 0;
  for (std::size_t j = 0; j < mean.size(); ++j)
    model.alpha.push_back(mean[j] - model.beta[j] * queries.position_mean);
}

// Everything that follows from the moments and the keys' signs.
QueryModel fit_drift(const Moments& queries, std::vector<double> signs) {
  QueryModel model;
  model.sign = std::move(signs);
  std::vector<double> direction;
  regress_dimensions(queries, model, direction);
  if (model.beta_norm > 0) {
    for (double& x : direction) x /= model.beta_norm;
    std::vector<double> first_axis(direction.size());
    first_axis.front() = 1;
    model.reflection = householder_between(first_axis, direction);
  }
  refit(queries, model);
  return model;
}

// The diagonal of a scatter matrix in rotated coordinates: with B = S C S and H = I - 2 w w^T, of
// H B H.
std::vector<double> rotated_diagonal(const Matrix& scatter, const QueryModel& model) {
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

// As predict_position() with rows, as far as sums go; `drift_scatter`: of the first rotated
// coordinate.
void predict_position(const LogPositions& u, double drift_scatter, QueryModel& model) {
  model.scalar_r_squared = model.mae_baseline = model.mae_projection = kNan;
  if (!(u.scatter > 0)) return;
  model.mae_baseline = u.mean_deviation;
  if (!(model.beta_norm > 0) || !(drift_scatter > 0)) return;
  const double along = rotate(u.cross_scatter, model).front();
  model.scalar_r_squared = along * along / (drift_scatter * u.scatter);
}

QueryBucket rotated_bucket(const QueryBucketMoments& from, const QueryModel& model) {
  QueryBucket bucket{from.bucket, from.count, from.position, rotate(from.mean, model), {}};
  if (from.count < 2 || from.scatter.data.empty()) return bucket;
  bucket.variance = rotated_diagonal(from.scatter, model);
  for (double& x : bucket.variance)
    x = std::max(kVarianceFloor, x / static_cast<double>(from.count - 1));
  return bucket;
}

// Queries without their drift in a model's rotated coordinates, one line per coordinate, a few
// coordinates at a time: what is computed from a line then happens in the second cache.
class DriftlessLines {
 public:
  static constexpr std::int64_t kLines = DriftingRows::kLines;

  // Takes the model's signs, reflection and drift; starts its buckets.
  DriftlessLines(const CentredRows& queries, QueryModel& model);

  // Coordinates first .. first + kLines - 1, fewer at the end, with their buckets' moments.
  DriftSums take(std::int64_t first);
  std::span<const double> line(std::int64_t i) const { return {lines_.row(i), time_.size()}; }
  // Line 0 as it was with the drift of coordinate j.
  std::vector<double> with_drift(std::size_t j) const;
  // Where coordinate j drifts to, in bucket b, from its mean.
  double expected(std::size_t b, std::size_t j) const {
    return model_.beta[j] * (model_.buckets[b].position - queries_.position_mean);
  }

 private:
  void start_buckets(const DistinctNumbers& buckets);

  const CentredRows& queries_;
  QueryModel& model_;
  std::vector<std::int32_t> place_;  // (rows): of the bucket
  std::vector<double> time_;         // (rows): position minus the bucket's mean position
  std::vector<double> reflected_;    // (rows): 2 w.(x - mean) of the reflection
  Matrix lines_;                     // (kLines, rows and a few numbers more)
};

// Lines that begin an odd number of cache lines apart do not drive each other out.
std::int64_t line_stride(std::int64_t rows) {
  return ((rows + 8) / 8 | 1) * 8;
}

DriftlessLines::DriftlessLines(const CentredRows& queries, QueryModel& model)
    : queries_(queries), model_(model), lines_(kLines, line_stride(queries.size())) {
  DistinctNumbers buckets(queries.source.bucket);
  start_buckets(buckets);
  place_ = std::move(buckets.place);
  // The reflection in the rows' own signs.
  std::vector<double> w(model.sign);
  for (std::size_t j = 0; j < w.size(); ++j)
    w[j] *= model.reflection.empty() ? 0 : model.reflection[j];
  reflected_ = CentredProjection(queries, w).of_all();
  for (double& x : reflected_) x *= 2;
  time_.reserve(place_.size());
  for (std::size_t i = 0; i < place_.size(); ++i)
    time_.push_back(queries.source.position[i] -
                    model.buckets[static_cast<std::size_t>(place_[i])].position);
}

void DriftlessLines::start_buckets(const DistinctNumbers& buckets) {
  for (const auto number : buckets.numbers) model_.buckets.push_back({number, 0, 0, {}, {}});
  for (std::size_t i = 0; i < buckets.place.size(); ++i) {
    QueryBucket& bucket = model_.buckets[static_cast<std::size_t>(buckets.place[i])];
    bucket.count += 1;
    bucket.position += queries_.source.position[i];  // whole: their sum is exact
  }
  const auto dim = static_cast<std::size_t>(queries_.dim());
  for (auto& bucket : model_.buckets) {
    bucket.position /= static_cast<double>(bucket.count);
    bucket.mean.resize(dim);
    if (bucket.count >= 2) bucket.variance.resize(dim);
  }
}

DriftSums DriftlessLines::take(std::int64_t first) {
  const auto dim = queries_.dim();
  const auto count = std::min<std::int64_t>(kLines, dim - first);
  Matrix start(std::ssize(model_.buckets), kLines);
  DriftingRows rows{queries_.source.vectors.data() + first,
                    dim,
                    count,
                    place_,
                    reflected_,
                    time_,
                    start,
                    {},
                    {},
                    {}};
  for (std::int64_t line = 0; line < count; ++line) {
    const auto j = static_cast<std::size_t>(first + line);
    rows.sign[line] = model_.sign[j];
    rows.w[line] = model_.reflection.empty() ? 0 : model_.reflection[j];
    rows.drift[line] = model_.beta[j];
    // Around where the drift leads one expects the bucket: little cancels.
    for (std::int64_t b = 0; b < start.rows; ++b)
      start(b, line) =
          -model_.sign[j] * queries_.mean[j] - expected(static_cast<std::size_t>(b), j);
  }
  return drift_residuals(rows, lines_.cols, lines_.data.data());
}

std::vector<double> DriftlessLines::with_drift(std::size_t j) const {
  std::vector<double> values(line(0).begin(), line(0).end());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] += model_.beta[j] * time_[i] + expected(static_cast<std::size_t>(place_[i]), j);
  return values;
}

// log2(position + 1) of every row.
std::vector<double> log_positions(const Rows& rows) {
  std::vector<double> logs;
  logs.reserve(rows.position.size());
  for (const auto position : rows.position) logs.push_back(std::log2(position + 1.0));
  return logs;
}

// Mean and variance of coordinate j in every bucket. `mean`: of the coordinate, over all queries.
void describe_buckets(const DriftSums& sums, std::int64_t line, std::size_t j, double mean,
                      const DriftlessLines& lines, QueryModel& model) {
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    QueryBucket& bucket = model.buckets[b];
    const auto count = static_cast<double>(bucket.count);
    const double sum = sums.sum(static_cast<std::int64_t>(b), line);
    const double squares = sums.squares(static_cast<std::int64_t>(b), line);
    bucket.mean[j] = mean + lines.expected(b, j) + sum / count;
    if (!bucket.variance.empty())
      bucket.variance[j] = std::max(kVarianceFloor, (squares - sum * sum / count) / (count - 1));
  }
}

// Everything that needs the rows themselves, coordinate by coordinate.
void describe_coordinates(const CentredRows& queries, QueryModel& model) {
  DriftlessLines lines(queries, model);
  const auto mean = rotate(queries.mean, model);
  const auto n = static_cast<double>(queries.size());
  for (std::int64_t first = 0; first < queries.dim(); first += DriftlessLines::kLines) {
    const DriftSums sums = lines.take(first);
    if (first == 0) predict_position(log_positions(queries.source), lines.with_drift(0), model);
    const auto count = std::min<std::int64_t>(DriftlessLines::kLines, queries.dim() - first);
    for (std::int64_t line = 0; line < count; ++line) {
      const auto j = static_cast<std::size_t>(first + line);
      describe_buckets(sums, line, j, mean[j], lines, model);
      const PowerSums& residual = sums.residual[line];
      model.residual_variance.push_back(std::max(kVarianceFloor, residual.second / (n - 1)));
      model.normality.push_back(normality_of(lines.line(line), residual));
    }
  }
}

}  // namespace

std::vector<double> rotate(std::span<const double> x, const QueryModel& model) {
  std::vector<double> rotated(model.sign);
  for (std::size_t j = 0; j < x.size(); ++j) rotated[j] *= x[j];
  reflect(rotated, model.reflection);
  return rotated;
}

std::vector<double> signs_of(const Matrix& means) {
  std::vector<double> signs(static_cast<std::size_t>(means.cols));
  for (std::int64_t i = 0; i < means.rows; ++i)
    for (std::size_t j = 0; j < signs.size(); ++j)
      signs[j] += means.row(i)[j] / static_cast<double>(means.rows);
  for (double& value : signs) value = value < 0 ? -1 : 1;
  return signs;
}

std::vector<double> key_signs(const CentredRows& keys) {
  const DistinctNumbers buckets(keys.source.bucket);
  const auto dim = static_cast<std::size_t>(keys.dim());
  Matrix means(std::ssize(buckets.numbers), keys.dim());
  std::vector<double> count(buckets.numbers.size());
  const float* x = keys.source.vectors.data();
  for (const auto place : buckets.place) {
    count[static_cast<std::size_t>(place)] += 1;
    add_rows(x, 1, {means.row(place), dim});
    x += dim;
  }
  for (std::int64_t i = 0; i < means.rows; ++i)
    for (std::size_t j = 0; j < dim; ++j) means.row(i)[j] /= count[static_cast<std::size_t>(i)];
  return signs_of(means);
}

QueryModel fit_queries(const CentredRows& queries, std::vector<double> signs) {
  QueryModel model = fit_drift(queries, std::move(signs));
  describe_coordinates(queries, model);
  return model;
}

QueryModel fit_moments(const Moments& queries, const LogPositions& log_positions,
                       std::vector<double> signs, std::span<const QueryBucketMoments> buckets) {
  QueryModel model = fit_drift(queries, std::move(signs));
  const auto variance = rotated_diagonal(queries.scatter, model);
  const auto n = static_cast<double>(queries.size());
  for (std::size_t j = 0; j < variance.size(); ++j) {
    const double drift = model.beta[j] * model.beta[j] * queries.position_scatter;
    model.residual_variance.push_back(std::max(kVarianceFloor, (variance[j] - drift) / (n - 1)));
  }
  predict_position(log_positions, variance.front(), model);
  for (const auto& bucket : buckets) model.buckets.push_back(rotated_bucket(bucket, model));
  return model;
}

}  // namespace qkscope
