// Weighted least-squares fits of the queries around given positions: every coordinate is regressed
// on position (degree 1) or averaged (degree 0) with the weights of a window.
//
// With weights w, scaled distances d = (t - centre) / scale and normal matrix A = sum w (1, d)(1,
// d)^T the fitted mean at the centre is b0 of A b = sum w (1, d) x. The residual variance is (sum w
// x^2 - b . sum w (1, d) x) / (sum w - tr(A^-1 B)) with B = sum w^2 (1, d)(1, d)^T, which is
// unbiased for independent rows of equal variance. All sums are kept by group of texts, so that the
// fit without a group (jackknife) needs no second pass over the rows.
#include <algorithm>
#include <cmath>

#include "analysis/methods/kernels/query_model.h"
#include "base/core/numbers.h"

namespace qkscope {
RowWindow epanechnikov_fit_window(std::span<const double> position, double centre,
                                  double half_width) {
  constexpr double kGrowth = 1.1;
  const double reach = position.empty() ? 0
                                        : std::max(std::fabs(position.front() - centre),
                                                   std::fabs(position.back() - centre));
  RowWindow window{centre, std::max(half_width, 1.0), 1, {}, {}};
  for (;; window.scale *= kGrowth) {
    const auto low = std::upper_bound(position.begin(), position.end(), centre - window.scale);
    const auto high = std::lower_bound(low, position.end(), centre + window.scale);
    window.row.clear();
    window.weight.clear();
    double sum = 0;
    double squares = 0;
    for (auto t = low; t < high; ++t) {
      const double d = (*t - centre) / window.scale;
      window.row.push_back(t - position.begin());
      window.weight.push_back(1 - d * d);
      sum += window.weight.back();
      squares += window.weight.back() * window.weight.back();
    }
    const bool enough = sum * sum >= kEffectiveRows * squares && sum > 0;
    if (enough || window.scale > 4 * reach + 1) return window;
  }
}

RowWindow uniform_fit_window(std::vector<std::int64_t> rows, double centre, int degree) {
  RowWindow window{centre, 1, degree, std::move(rows), {}};
  window.weight.assign(window.row.size(), 1);
  return window;
}

JackknifeFits::JackknifeFits(const FloatMatrix& rows, std::span<const double> position,
                             std::span<const int> group, int groups,
                             std::span<const RowWindow> windows)
    : groups_(groups),
      dim_(rows.cols),
      moments_(windows.size() * as_index(groups)),
      sums_(std::ssize(windows) * groups, 3 * rows.cols),
      totals_(std::ssize(windows), 3 * rows.cols) {
  std::vector<std::vector<WeightedRow>> of_group(as_index(groups));
  for (std::size_t k = 0; k < windows.size(); ++k) {
    const RowWindow& window = windows[k];
    for (auto& own : of_group) own.clear();
    scale_.push_back(window.scale);
    degree_.push_back(window.degree);
    for (std::size_t i = 0; i < window.row.size(); ++i) {
      const auto row = as_index(window.row[i]);
      const auto cell = k * as_index(groups) + as_index(group[row]);
      const double w = window.weight[i];
      const double d = (position[row] - window.centre) / window.scale;
      WeightMoments& moments = moments_[cell];
      moments.rows += 1;
      for (int power = 0; power < 3; ++power) {
        const double factor = power == 0 ? 1 : power == 1 ? d : d * d;
        moments.w[power] += w * factor;
        moments.w2[power] += w * w * factor;
      }
      __builtin_prefetch(rows.row(window.row[i]));
      of_group[as_index(group[row])].push_back({rows.row(window.row[i]), w, w * d});
    }
    for (int g = 0; g < groups; ++g) {
      const std::span<double> sum(sums_.row(static_cast<std::int64_t>(k) * groups + g),
                                  3 * as_index(dim_));
      compute_weighted_sums(of_group[as_index(g)], dim_, sum.data());
      add_scaled(1, sum, {totals_.row(static_cast<std::int64_t>(k)), sum.size()});
    }
  }
}

void JackknifeFits::fit_window(std::int64_t window, int group, WindowFits& fits) const {
  WeightMoments m;  // of all groups but one
  for (int g = 0; g < groups_; ++g) {
    if (g == group) continue;
    const WeightMoments& part = moments_[as_index(window * groups_ + g)];
    m.rows += part.rows;
    for (int power = 0; power < 3; ++power) {
      m.w[power] += part.w[power];
      m.w2[power] += part.w2[power];
    }
  }
  const double* const total = totals_.row(window);
  const std::vector<double> nothing(group < 0 ? as_index(3 * dim_) : 0);
  const double* const left = group < 0 ? nothing.data() : sums_.row(window * groups_ + group);
  double* const mean = fits.mean.row(window);
  double* const slope = fits.slope.row(window);
  double* const variance = fits.variance.row(window);
  const double det = m.w[0] * m.w[2] - m.w[1] * m.w[1];
  const bool line = degree_[as_index(window)] == 1 && det > 1e-12 * m.w[0] * m.w[2] && m.rows > 2;
  const double freedom =
      line ? m.w[0] - (m.w[2] * m.w2[0] - 2 * m.w[1] * m.w2[1] + m.w[0] * m.w2[2]) / det
           : m.w[0] - m.w2[0] / m.w[0];
  if (m.rows < 2 || !(freedom > 1e-12 * m.w[0])) {
    std::fill_n(mean, dim_, kNan);
    std::fill_n(variance, dim_, kNan);
    return;
  }
  // (b0, b1) = inverse (s0, s1)
  const double inverse[3] = {line ? m.w[2] / det : 1 / m.w[0], line ? -m.w[1] / det : 0,
                             line ? m.w[0] / det : 0};
  const double scale = scale_[as_index(window)];
  for (std::int64_t j = 0; j < dim_; ++j) {
    const double s0 = total[j] - left[j];
    const double s1 = total[dim_ + j] - left[dim_ + j];
    const double s2 = total[2 * dim_ + j] - left[2 * dim_ + j];
    const double b0 = inverse[0] * s0 + inverse[1] * s1;
    const double b1 = inverse[1] * s0 + inverse[2] * s1;
    mean[j] = b0;
    slope[j] = b1 / scale;
    variance[j] = std::max(kVarianceFloor, (s2 - b0 * s0 - b1 * s1) / freedom);
  }
}

WindowFits JackknifeFits::fits_without_group(int group) const {
  WindowFits fits{Matrix(totals_.rows, dim_), Matrix(totals_.rows, dim_),
                  Matrix(totals_.rows, dim_)};
  for (std::int64_t k = 0; k < totals_.rows; ++k) fit_window(k, group, fits);
  return fits;
}

Matrix shrunk_covariance_cholesky(const FloatMatrix& rows, std::span<const double> position,
                                  const RowWindow& window, const WindowFits& fits,
                                  std::int64_t column) {
  const double* const mean = fits.mean.row(column);
  const double* const slope = fits.slope.row(column);
  const double* const variances = fits.variance.row(column);
  const auto dim = rows.cols;
  Matrix covariance(dim, dim);  // sum of w r r^T with weights that sum to 1
  Matrix squared(dim, dim);     // sum of w^2 r r^T
  double weights = 0;
  double squares = 0;
  double products = 0;  // sum of w^2 over all off-diagonal (r_i r_j)^2
  for (const double w : window.weight) weights += w;
  std::vector<double> residual(as_index(dim));
  for (std::size_t i = 0; i < window.row.size(); ++i) {
    const double w = window.weight[i] / weights;
    const double t = position[as_index(window.row[i])] - window.centre;
    const float* const x = rows.row(window.row[i]);
    double second = 0;
    double fourth = 0;
    for (std::int64_t j = 0; j < dim; ++j) {
      const double r = x[j] - mean[j] - slope[j] * t;
      residual[as_index(j)] = r;
      second += r * r;
      fourth += r * r * r * r;
    }
    squares += w * w;
    products += w * w * (second * second - fourth);
    for (std::int64_t j = 0; j < dim; ++j) {
      const double r = residual[as_index(j)];
      add_scaled(w * r, residual, {covariance.row(j), residual.size()});
      add_scaled(w * w * r, residual, {squared.row(j), residual.size()});
    }
  }
  // Ledoit-Wolf shrinkage intensity towards the diagonal: the summed variance of the off-diagonal
  // elements divided by the sum of their squares.
  double variance = products;
  double size = 0;
  for (std::int64_t i = 0; i < dim; ++i)
    for (std::int64_t j = 0; j < dim; ++j) {
      if (i == j) continue;
      const double s = covariance(i, j);
      variance += s * s * squares - 2 * s * squared(i, j);
      size += s * s;
    }
  const double kept = size > 0 ? 1 - std::clamp(variance / size, 0.0, 1.0) : 0;
  Matrix lower(dim, dim);
  for (std::int64_t i = 0; i < dim; ++i) {
    const double diagonal = std::max(kVarianceFloor, covariance(i, i));
    for (std::int64_t j = 0; j <= i; ++j) {
      const double other = std::max(kVarianceFloor, covariance(j, j));
      double sum = i == j ? variances[i]
                          : kept * covariance(i, j) *
                                std::sqrt(variances[i] * variances[j] / (diagonal * other));
      for (std::int64_t k = 0; k < j; ++k) sum -= lower(i, k) * lower(j, k);
      lower(i, j) = i == j ? std::sqrt(std::max(sum, kVarianceFloor)) : sum / lower(j, j);
    }
  }
  return lower;
}

}  // namespace qkscope
