#include "analysis/query_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "analysis/correlation.h"
#include "analysis/rotation.h"

namespace qkscope {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The sign of the mean over buckets of the keys' mean in each bucket; 0 counts as +.
std::vector<double> key_signs(const CentredRows& keys) {
  const auto dim = static_cast<std::size_t>(keys.dim());
  struct Sum {
    std::vector<double> total;
    double count = 0;
  };
  std::map<std::int32_t, Sum> sums;
  std::vector<double> row(dim);
  for (std::int64_t i = 0; i < keys.size(); ++i) {
    Sum& sum = sums[keys.source.bucket[static_cast<std::size_t>(i)]];
    sum.total.resize(dim);
    sum.count += 1;
    copy_centred(keys, i, i + 1, row.data());
    for (std::size_t j = 0; j < dim; ++j) sum.total[j] += row[j];
  }
  std::vector<double> mean(dim);
  for (const auto& [bucket, sum] : sums)
    for (std::size_t j = 0; j < dim; ++j)
      mean[j] += (keys.mean[j] + sum.total[j] / sum.count) / static_cast<double>(sums.size());
  for (double& x : mean) x = x < 0 ? -1 : 1;
  return mean;
}

void regress_dimensions(const CentredRows& queries, QueryModel& model,
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

// y = log2(position + 1) on the first rotated coordinate.
void predict_position(const CentredRows& queries, const Matrix& rotated, QueryModel& model) {
  model.scalar_r_squared = model.mae_baseline = model.mae_projection = kNan;
  const auto n = static_cast<double>(queries.size());
  std::vector<double> y;
  double mean = 0;
  for (const auto t : queries.source.position) {
    y.push_back(std::log2(static_cast<double>(t) + 1));
    mean += y.back() / n;
  }
  double sy = 0;
  double ss = 0;
  double yy = 0;
  double baseline = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double s = rotated(static_cast<std::int64_t>(i), 0);
    y[i] -= mean;
    sy += s * y[i];
    ss += s * s;
    yy += y[i] * y[i];
    baseline += std::fabs(y[i]) / n;
  }
  if (!(yy > 0)) return;
  model.mae_baseline = baseline;
  if (!(model.beta_norm > 0) || !(ss > 0)) return;
  model.scalar_r_squared = sy * sy / (ss * yy);
  model.mae_projection = 0;
  for (std::size_t i = 0; i < y.size(); ++i)
    model.mae_projection +=
        std::fabs(y[i] - sy / ss * rotated(static_cast<std::int64_t>(i), 0)) / n;
}

// Refits in rotated coordinates; fills beta, alpha, residuals (transposed) and their variance.
void refit(const CentredRows& queries, const Matrix& rotated, QueryModel& model) {
  const auto dim = queries.dim();
  const auto count = queries.size();
  const auto mean = rotate(queries.mean, model);
  model.beta = rotate(queries.cross_scatter, model);
  for (double& x : model.beta) x = queries.position_scatter > 0 ? x / queries.position_scatter : 0;
  for (int j = 0; j < dim; ++j) {
    const auto at = static_cast<std::size_t>(j);
    model.alpha.push_back(mean[at] - model.beta[at] * queries.position_mean);
  }
  model.residuals = Matrix(dim, count);
  constexpr std::int64_t kTile = 16;  // rows at a time: a cache line of each output line or two
  for (std::int64_t begin = 0; begin < count; begin += kTile) {
    const auto end = std::min(begin + kTile, count);
    for (int j = 0; j < dim; ++j) {
      double* const out = model.residuals.row(j);
      const double slope = model.beta[static_cast<std::size_t>(j)];
      for (std::int64_t i = begin; i < end; ++i)
        out[i] = rotated(i, j) - slope * (queries.source.position[static_cast<std::size_t>(i)] -
                                          queries.position_mean);
    }
  }
  for (int j = 0; j < dim; ++j) {
    const std::span<const double> line(model.residuals.row(j), static_cast<std::size_t>(count));
    const double variance = dot(line, line) / static_cast<double>(count - 1);
    model.residual_variance.push_back(std::max(kVarianceFloor, variance));
  }
}

void describe_buckets(const CentredRows& queries, const Matrix& rotated, QueryModel& model) {
  const auto dim = static_cast<std::size_t>(queries.dim());
  const auto mean = rotate(queries.mean, model);
  std::map<std::int32_t, QueryBucket> buckets;
  const auto each_row = [&](const auto& body) {
    for (std::int64_t i = 0; i < queries.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      body(buckets[queries.source.bucket[at]], queries.source.position[at], rotated.row(i));
    }
  };
  each_row([&](QueryBucket& bucket, std::int32_t position, const double* x) {
    bucket.mean.resize(dim);
    bucket.variance.resize(dim);
    ++bucket.count;
    bucket.position += position;
    for (std::size_t j = 0; j < dim; ++j) bucket.mean[j] += x[j];
  });
  for (auto& [number, bucket] : buckets) {
    bucket.bucket = number;
    bucket.position /= static_cast<double>(bucket.count);
    for (double& x : bucket.mean) x /= static_cast<double>(bucket.count);
  }
  each_row([&](QueryBucket& bucket, std::int32_t, const double* x) {
    for (std::size_t j = 0; j < dim; ++j)
      bucket.variance[j] += (x[j] - bucket.mean[j]) * (x[j] - bucket.mean[j]);
  });
  for (auto& [number, bucket] : buckets) {
    for (std::size_t j = 0; j < dim; ++j) {
      bucket.mean[j] += mean[j];
      bucket.variance[j] =
          std::max(kVarianceFloor, bucket.variance[j] / static_cast<double>(bucket.count - 1));
    }
    if (bucket.count < 2) bucket.variance.clear();
    model.buckets.push_back(std::move(bucket));
  }
}

}  // namespace

Matrix rotate(const CentredRows& rows, const QueryModel& model) {
  Matrix rotated(rows.size(), rows.dim());
  const auto dim = static_cast<std::size_t>(rows.dim());
  copy_centred(rows, 0, rows.size(), rotated.data.data());
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    double* const x = rotated.row(i);
    for (std::size_t j = 0; j < dim; ++j) x[j] *= model.sign[j];
  }
  reflect_rows(rotated, model.reflection);
  return rotated;
}

std::vector<double> rotate(std::span<const double> x, const QueryModel& model) {
  Matrix row(1, std::ssize(x));
  for (std::size_t j = 0; j < x.size(); ++j) row.data[j] = model.sign[j] * x[j];
  reflect_rows(row, model.reflection);
  return std::move(row.data);
}

QueryModel fit_queries(const CentredRows& queries, const CentredRows& keys) {
  QueryModel model;
  model.sign = key_signs(keys);
  std::vector<double> direction;
  regress_dimensions(queries, model, direction);
  if (model.beta_norm > 0) {
    for (double& x : direction) x /= model.beta_norm;
    std::vector<double> first_axis(direction.size());
    first_axis.front() = 1;
    model.reflection = householder_between(first_axis, direction);
  }
  const Matrix rotated = rotate(queries, model);
  predict_position(queries, rotated, model);
  refit(queries, rotated, model);
  describe_buckets(queries, rotated, model);
  return model;
}

}  // namespace qkscope
