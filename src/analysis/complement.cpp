#include "analysis/complement.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/step_maximum.h"

namespace qkscope {
namespace {

// Applies the reflection to both sides of a symmetric matrix.
void reflect_symmetric(Matrix& matrix, std::span<const double> w) {
  reflect_rows(matrix, w);
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < i; ++j) std::swap(matrix(i, j), matrix(j, i));
  reflect_rows(matrix, w);
}

std::vector<double> unit(std::int64_t size, std::size_t at) {
  std::vector<double> e(static_cast<std::size_t>(size));
  e[at] = 1;
  return e;
}

// What one plane needs of the projected rows: lines 2 * pair and 2 * pair + 1 of (axes, rows).
class PlaneRows {
 public:
  PlaneRows(const Matrix& queries, const Matrix& keys, std::int64_t pair)
      : query_count_(static_cast<std::size_t>(queries.cols)) {
    take(queries, pair);
    take(keys, pair);
  }

  void unit_circle(std::vector<double>& cosine, std::vector<double>& sine) {
    cosine.resize(x_.size());
    sine.resize(x_.size());
    radius_ = 0;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const double radius = std::sqrt(x_[i] * x_[i] + y_[i] * y_[i]);
      radius_ += radius / static_cast<double>(x_.size());
      // atan2(0, 0) is 0: a row at the centre points along the first axis.
      cosine[i] = radius > 0 ? x_[i] / radius : 1;
      sine[i] = radius > 0 ? y_[i] / radius : 0;
    }
  }

  double separability() const {
    const double qx = mean(x_, 0, query_count_);
    const double qy = mean(y_, 0, query_count_);
    const double kx = mean(x_, query_count_, x_.size());
    const double ky = mean(y_, query_count_, x_.size());
    // Where the centroids coincide (always when b is the difference of means) nothing tells q from
    // k.
    if (std::hypot(qx - kx, qy - ky) <= 1e-9 * radius_) return 0.5;
    std::vector<double> along(x_.size());
    for (std::size_t i = 0; i < x_.size(); ++i) along[i] = x_[i] * (qx - kx) + y_[i] * (qy - ky);
    const std::span<const double> all(along);
    return 0.5 + 0.5 * best_split(all.first(query_count_), all.subspan(query_count_));
  }

 private:
  void take(const Matrix& rows, std::int64_t pair) {
    x_.insert(x_.end(), rows.row(2 * pair), rows.row(2 * pair) + rows.cols);
    y_.insert(y_.end(), rows.row(2 * pair + 1), rows.row(2 * pair + 1) + rows.cols);
  }

  static double mean(const std::vector<double>& values, std::size_t begin, std::size_t end) {
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += values[i];
    return sum / static_cast<double>(end - begin);
  }

  std::size_t query_count_;
  double radius_ = 0;      // mean distance from the centre
  std::vector<double> x_;  // (queries + keys)
  std::vector<double> y_;
};

double nearest_to(double omega, const std::vector<double>& frequencies) {
  double nearest = std::numeric_limits<double>::quiet_NaN();
  // Frequencies are spaced by ratio, so nearness is a ratio too.
  double distance = std::numeric_limits<double>::infinity();
  for (const double frequency : frequencies) {
    const double ratio = std::fabs(std::log(std::max(omega, 1e-300) / frequency));
    if (ratio >= distance) continue;
    distance = ratio;
    nearest = frequency;
  }
  return nearest;
}

}  // namespace

Complement complement_of(const PooledMoments& pooled, std::span<const double> a,
                         std::span<const double> b) {
  const auto dim = pooled.scatter.rows;
  if (dim < 3) return {};
  // Two reflections take a and b to the first two axes; the rest of the matrix is the complement,
  // and its eigenvectors are orthogonal to a and b to the last digit.
  const auto first = householder_between(a, unit(dim, 0));
  Matrix b_row(1, dim);
  b_row.data.assign(b.begin(), b.end());
  reflect_rows(b_row, first);
  b_row(0, 0) = 0;
  const auto second = householder_between(b_row.data, unit(dim, 1));
  Matrix turned = pooled.scatter;
  reflect_symmetric(turned, first);
  reflect_symmetric(turned, second);
  Matrix rest(dim - 2, dim - 2);
  for (std::int64_t i = 0; i < dim - 2; ++i)
    for (std::int64_t j = 0; j < dim - 2; ++j)
      rest(i, j) = 0.5 * (turned(i + 2, j + 2) + turned(j + 2, i + 2));
  Eigen eigen = symmetric_eigen(rest);
  Complement complement{std::move(eigen.values), Matrix(dim - 2, dim)};
  for (double& variance : complement.variance) variance = std::max(0.0, variance);
  for (std::int64_t i = 0; i < dim - 2; ++i)
    std::copy(eigen.vectors.row(i), eigen.vectors.row(i) + dim - 2, complement.axes.row(i) + 2);
  reflect_rows(complement.axes, second);
  reflect_rows(complement.axes, first);
  return complement;
}

std::vector<ComplementPair> complement_pairs(const CentredRows& queries, const CentredRows& keys,
                                             const PooledMoments& pooled,
                                             const Complement& complement, FrequencySearch& search,
                                             const RotationOptions& options) {
  const auto pairs = std::min<std::int64_t>(options.pairs, complement.axes.rows / 2);
  Matrix axes(2 * pairs, queries.dim());
  std::copy_n(complement.axes.data.begin(), axes.data.size(), axes.data.begin());
  const Matrix q = project_rows(queries, pooled, axes);
  const Matrix k = project_rows(keys, pooled, axes);
  double left = 0;
  for (const double variance : complement.variance) left += variance;
  const double total = trace(pooled.scatter);
  std::vector<ComplementPair> result;
  std::vector<double> cosine;
  std::vector<double> sine;
  for (std::int64_t i = 0; i < pairs; ++i) {
    PlaneRows plane(q, k, i);
    plane.unit_circle(cosine, sine);
    const auto peak = search.strongest_rotation(cosine, sine);
    const double variance = complement.variance[static_cast<std::size_t>(2 * i)] +
                            complement.variance[static_cast<std::size_t>(2 * i + 1)];
    ComplementPair pair;
    pair.variance_share = variance / left;
    pair.variance_share_total = variance / total;
    pair.angle_r = peak.strength;
    pair.omega = peak.omega;
    pair.nearest_inv_freq = nearest_to(peak.omega, options.inv_freq);
    pair.separability = plane.separability();
    pair.active = peak.strength > options.active_angle_r;
    result.push_back(pair);
  }
  return result;
}

}  // namespace qkscope
