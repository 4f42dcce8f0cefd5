// Permutation test for the correlations along the drift axis (rotation.h).
#include <algorithm>
#include <cmath>

#include "analysis/methods/rotation.h"
#include "base/core/numbers.h"
#include "base/numerics/matrix.h"
#include "base/numerics/products.h"
#include "base/numerics/random.h"

namespace qkscope {
namespace {

// Below this number of rows per dimension, positions are shuffled explicitly. Above it, the cross
// scatter of shuffled positions is drawn from its limiting normal distribution.
constexpr std::int64_t kRowsPerDimension = 4;

// Returns the cross scatter of the rows with shuffled positions, sum of centred row * (shuffled
// position - mean), for each draw; shape (draws, dim).
Matrix shuffled_cross_scatter(const CentredRows& rows, std::int64_t draws, Random& random) {
  const auto order = argsort_by_text_and_position(rows.source);
  Matrix vectors(rows.count, rows.dim());
  Matrix times(draws, rows.count);
  std::vector<double> time;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto row = static_cast<std::int64_t>(order[i]);
    copy_centred_rows(rows, row, row + 1, vectors.row(static_cast<std::int64_t>(i)));
    time.push_back(rows.source.position[order[i]] - rows.position_mean);
  }
  for (std::int64_t draw = 0; draw < draws; ++draw) {
    for (auto i = time.size(); i > 1; --i) std::swap(time[i - 1], time[random.next_below(i)]);
    std::copy(time.begin(), time.end(), times.row(draw));
  }
  return multiply(times, vectors);
}

// Draws the cross scatter for many rows. Shuffled positions are a vector of fixed length with
// uniformly random direction in n - 1 dimensions. Its products with the columns of the centred rows
// are L z / |g|, with L L^T the scatter and z the first elements of a standard normal vector g.
Matrix normal_cross_scatter(const CentredRows& rows, std::int64_t draws, Random& random) {
  Matrix z(draws, rows.dim());
  random.fill_normal(z.data);
  Matrix sums = multiply_by_transpose(z, semidefinite_cholesky(rows.scatter));
  const auto others = static_cast<double>(rows.count - 1 - rows.dim());
  for (std::int64_t draw = 0; draw < draws; ++draw) {
    const std::span<const double> own(z.row(draw), as_index(z.cols));
    const double length = std::sqrt(dot(own, own) + random.chi_squared(others));
    for (std::int64_t j = 0; j < sums.cols; ++j)
      sums(draw, j) *= std::sqrt(rows.position_scatter) / length;
  }
  return sums;
}

Matrix null_cross_scatter(const CentredRows& rows, std::int64_t draws, std::uint64_t seed) {
  Random random(seed);
  return rows.count < kRowsPerDimension * rows.dim() ? shuffled_cross_scatter(rows, draws, random)
                                                     : normal_cross_scatter(rows, draws, random);
}

// Returns a^T S a for each row a of `lines` and the scatter matrix S.
std::vector<double> quadratic_forms(const Matrix& lines, const Matrix& scatter) {
  const Matrix product = multiply_by_transpose(lines, scatter);
  std::vector<double> result;
  for (std::int64_t i = 0; i < lines.rows; ++i)
    result.push_back(
        dot({product.row(i), as_index(product.cols)}, {lines.row(i), as_index(lines.cols)}));
  return result;
}

// Mean of |r| over permutations, and the permutation p value of the observed |r|.
class PermutationNull {
 public:
  explicit PermutationNull(double observed) : observed_(std::fabs(observed)) {}

  void add(double covariance, double variance, double position_scatter) {
    const double r = std::fabs(covariance) / std::sqrt(variance * position_scatter);
    if (!(variance > 0)) return;
    sum_ += r;
    ++draws_;
    // The tolerance absorbs rounding errors if a permutation reproduces the observed value.
    as_large_ += r >= observed_ * (1 - 1e-12) ? 1 : 0;
  }

  double mean() const { return draws_ > 0 ? sum_ / draws_ : kNan; }
  double p_value() const {
    return draws_ > 0 && !std::isnan(observed_) ? (1.0 + as_large_) / (1.0 + draws_) : kNan;
  }

 private:
  double observed_;
  double sum_ = 0;
  int draws_ = 0;
  int as_large_ = 0;
};

}  // namespace

PositionNull permutation_null_of_drift(const CentredRows& queries, const CentredRows& keys,
                                       const PooledMoments& pooled, const RotationResult& observed,
                                       const RotationOptions& options) {
  if (options.null_draws <= 0) return {};
  const Matrix of_queries = null_cross_scatter(queries, options.null_draws, options.seed * 2);
  const Matrix of_keys = null_cross_scatter(keys, options.null_draws, options.seed * 2 + 1);
  const double between = pooled.between * (queries.position_mean - keys.position_mean);
  Matrix a = of_queries;
  std::vector<double> drift;  // (draws): length of the pooled cross scatter with position
  for (std::int64_t draw = 0; draw < a.rows; ++draw) {
    const std::span<double> line(a.row(draw), as_index(a.cols));
    add_scaled(1, {of_keys.row(draw), line.size()}, line);
    add_scaled(between, pooled.delta, line);
    drift.push_back(norm(line));
    for (double& x : line) x /= drift.back();
  }
  const auto variance_q = quadratic_forms(a, queries.scatter);
  const auto variance_k = quadratic_forms(a, keys.scatter);
  PermutationNull position(observed.position_r);
  PermutationNull q(observed.r_q_a);
  PermutationNull k(observed.r_k_a);
  for (std::int64_t draw = 0; draw < a.rows; ++draw) {
    const auto i = as_index(draw);
    if (!(drift[i] > 0)) continue;
    const std::span<const double> line(a.row(draw), as_index(a.cols));
    // The pooled scatter is the sum of the scatter of queries, of keys, and between the two means.
    const double apart = dot(line, pooled.delta);
    position.add(drift[i], variance_q[i] + variance_k[i] + pooled.between * apart * apart,
                 pooled.position_scatter);
    q.add(dot({of_queries.row(draw), line.size()}, line), variance_q[i], queries.position_scatter);
    k.add(dot({of_keys.row(draw), line.size()}, line), variance_k[i], keys.position_scatter);
  }
  return {position.mean(), q.mean(), k.mean(), position.p_value(), q.p_value(), k.p_value()};
}

}  // namespace qkscope
