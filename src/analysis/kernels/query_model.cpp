#include "analysis/kernels/query_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/kernels/bucket_ranges.h"
#include "analysis/kernels/vector_loops.h"
#include "core/nan.h"
#include "numerics/products.h"

namespace qkscope {
namespace {

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

// Rows [begin, end) of the lines belong to one bucket.
struct BucketSpan {
  std::int32_t bucket = 0;
  double position = 0;  // mean over its rows
  std::size_t begin = 0;
  std::size_t end = 0;

  template <typename Number>
  std::span<Number> of(std::span<Number> line) const {
    return line.subspan(begin, end - begin);
  }
};

// Queries in a model's rotated coordinates, one line per coordinate, a few coordinates at a time:
// what is computed from a line then happens in the second cache.
class RotatedLines {
 public:
  static constexpr std::int64_t kLines = TurnedLines::kLines;

  // Takes the model's signs and reflection.
  RotatedLines(const CentredRows& queries, const QueryModel& model);

  const std::vector<BucketSpan>& buckets() const { return buckets_; }
  // Position minus the bucket's mean position, in the lines' order.
  std::span<const double> time() const { return time_; }
  // log2(position + 1), in the lines' order.
  std::vector<double> log_positions() const;

  // Coordinates first .. first + kLines - 1, fewer at the end.
  void take(std::int64_t first);
  std::span<double> line(std::int64_t i) { return {lines_.row(i), order_.size()}; }

 private:
  void sort_rows();

  const CentredRows& queries_;
  const QueryModel& model_;
  std::vector<BucketSpan> buckets_;
  std::vector<std::int64_t> order_;  // (rows): bucket after bucket
  std::vector<double> time_;         // (rows)
  std::vector<double> reflected_;    // (rows): 2 w.x of the reflection, in order
  Matrix lines_;                     // (kLines, rows and a few numbers more)
};

// Lines that begin an odd number of cache lines apart do not drive each other out.
std::int64_t line_stride(std::int64_t rows) {
  return ((rows + 8) / 8 | 1) * 8;
}

RotatedLines::RotatedLines(const CentredRows& queries, const QueryModel& model)
    : queries_(queries),
      model_(model),
      order_(static_cast<std::size_t>(queries.size())),
      lines_(kLines, line_stride(queries.size())) {
  sort_rows();
  // The reflection in the rows' own signs.
  std::vector<double> w(model.sign);
  for (std::size_t j = 0; j < w.size(); ++j)
    w[j] *= model.reflection.empty() ? 0 : model.reflection[j];
  const auto along = CentredProjection(queries, w).of_all();
  time_.reserve(order_.size());
  reflected_.reserve(order_.size());
  for (const auto& bucket : buckets_)
    for (auto i = bucket.begin; i < bucket.end; ++i) {
      const auto row = static_cast<std::size_t>(order_[i]);
      time_.push_back(queries.source.position[row] - bucket.position);
      reflected_.push_back(2 * along[row]);
    }
}

void RotatedLines::sort_rows() {
  const DistinctNumbers buckets(queries_.source.bucket);
  std::vector<std::size_t> next(buckets.numbers.size() + 1);  // row of each bucket
  for (const auto place : buckets.place) ++next[static_cast<std::size_t>(place) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (std::size_t b = 0; b < buckets.numbers.size(); ++b)
    buckets_.push_back({buckets.numbers[b], 0, next[b], next[b + 1]});
  for (std::size_t row = 0; row < order_.size(); ++row) {
    const auto place = static_cast<std::size_t>(buckets.place[row]);
    order_[next[place]++] = static_cast<std::int64_t>(row);
    buckets_[place].position += queries_.source.position[row];  // whole: their sum is exact
  }
  for (auto& bucket : buckets_) bucket.position /= static_cast<double>(bucket.end - bucket.begin);
}

std::vector<double> RotatedLines::log_positions() const {
  std::vector<double> logs;
  logs.reserve(order_.size());
  for (const auto row : order_)
    logs.push_back(std::log2(queries_.source.position[static_cast<std::size_t>(row)] + 1.0));
  return logs;
}

void RotatedLines::take(std::int64_t first) {
  const auto dim = queries_.dim();
  const auto count = std::min<std::int64_t>(kLines, dim - first);
  TurnedLines turned{
      queries_.source.vectors.data() + first, dim, order_, reflected_, count, {}, {}, {}};
  for (std::int64_t j = 0; j < count; ++j) {
    const auto at = static_cast<std::size_t>(first + j);
    turned.sign[j] = model_.sign[at];
    turned.mean[j] = queries_.mean[at];
    turned.w[j] = model_.reflection.empty() ? 0 : model_.reflection[at];
  }
  turn_lines(turned, lines_.cols, lines_.data.data());
}

void start_buckets(const CentredRows& queries, const RotatedLines& lines, QueryModel& model) {
  const auto dim = static_cast<std::size_t>(queries.dim());
  for (const auto& span : lines.buckets()) {
    const auto count = span.end - span.begin;
    QueryBucket bucket{span.bucket, static_cast<std::int64_t>(count), span.position, {}, {}};
    bucket.mean.resize(dim);
    if (count >= 2) bucket.variance.resize(dim);
    model.buckets.push_back(std::move(bucket));
  }
}

// Mean and variance of one coordinate in every bucket, of which the line is left without its drift.
// Returns the sums of what is left. `mean`: of the coordinate, over all queries.
PowerSums describe_buckets(std::span<double> line, const RotatedLines& lines, std::size_t j,
                           double mean, double mean_position, QueryModel& model) {
  PowerSums all;
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    const auto& span = lines.buckets()[b];
    QueryBucket& bucket = model.buckets[b];
    // Around where the drift leads one expects the bucket: little cancels.
    const double expected = model.beta[j] * (span.position - mean_position);
    const auto sums = take_drift({span.of(line), span.of(lines.time()), expected, model.beta[j]});
    const auto count = static_cast<double>(bucket.count);
    bucket.mean[j] = mean + expected + sums.sum / count;
    if (!bucket.variance.empty())
      bucket.variance[j] =
          std::max(kVarianceFloor, (sums.squares - sums.sum * sums.sum / count) / (count - 1));
    all.first += sums.residual.first;
    all.second += sums.residual.second;
    all.third += sums.residual.third;
    all.fourth += sums.residual.fourth;
  }
  return all;
}

// Everything that needs the rows themselves, coordinate by coordinate.
void describe_coordinates(const CentredRows& queries, QueryModel& model) {
  RotatedLines lines(queries, model);
  start_buckets(queries, lines, model);
  const auto mean = rotate(queries.mean, model);
  const auto n = static_cast<double>(queries.size());
  for (std::size_t j = 0; j < mean.size(); ++j) {
    const auto i = static_cast<std::int64_t>(j) % RotatedLines::kLines;
    if (i == 0) lines.take(static_cast<std::int64_t>(j));
    const auto line = lines.line(i);
    if (j == 0) predict_position(lines.log_positions(), line, model);
    const auto sums = describe_buckets(line, lines, j, mean[j], queries.position_mean, model);
    model.residual_variance.push_back(std::max(kVarianceFloor, sums.second / (n - 1)));
    model.normality.push_back(normality_of(line, sums));
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

QueryModel fit_queries(const CentredRows& queries, const CentredRows& keys) {
  QueryModel model = fit_drift(queries, key_signs(keys));
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
