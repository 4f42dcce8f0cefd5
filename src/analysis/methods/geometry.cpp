#include "analysis/methods/geometry.h"

#include <algorithm>
#include <complex>

#include "analysis/methods/moments.h"
#include "base/numerics/matrix.h"
#include "base/numerics/products.h"
#include "base/numerics/sample_statistics.h"

namespace qkscope {
namespace {

constexpr double kZeroEigenvalue = 1e-12;  // of the largest
constexpr double kRankShare = 0.9;
constexpr std::size_t kTop = 16;         // eigenvalues of entropy_top
constexpr double kMassive = 8;           // times the mean of the dimensions
constexpr std::int64_t kDecayFrom = 4;   // tokens
constexpr std::int64_t kDecayParts = 4;  // the decay is fitted up to length / kDecayParts

// Entropy in nats of non-negative weights, which are first divided by their sum.
double entropy_of_weights(std::span<const double> weights) {
  const double total = sum(weights);
  double entropy = 0;
  for (const double weight : weights)
    if (weight > 0) entropy -= weight / total * std::log(weight / total);
  return entropy;
}

// Adds columns about massive dimensions: the largest root mean square of a dimension divided by the
// mean over dimensions, and the number of dimensions above kMassive times that mean.
void add_massive_dimensions(const std::string& side, const Matrix& second, GeometryResult& result) {
  std::vector<double> rms;
  for (std::int64_t i = 0; i < second.rows; ++i) rms.push_back(std::sqrt(second(i, i)));
  const double mean = mean_of(rms);
  result.set("massive_" + side, std::ranges::max(rms) / mean);
  result.set("massive_count_" + side, static_cast<double>(std::ranges::count_if(
                                          rms, [&](double x) { return x > kMassive * mean; })));
}

std::complex<double> mean_of_rotary_pair(const Moments& rows, const RotaryEmbedding& rope,
                                         std::size_t pair) {
  const auto [real, imaginary] = rope.pair_dimensions(pair);
  return {rows.mean[real], rows.mean[imaginary]};
}

// Covariance, for each dimension a, of q_a k_a with the score q.k over independent q and k. With
// covariances M and means m it is sum_b (Mq Mk)_ab + Mq_ab mk_a mk_b + mq_a mq_b Mk_ab, where
// products of matrices are elementwise; the sum over all dimensions is the variance of the score.
std::vector<double> score_variance_by_dimension(const Moments& queries, const Moments& keys) {
  const auto dim = queries.mean.size();
  const double n_q = static_cast<double>(queries.count);
  const double n_k = static_cast<double>(keys.count);
  std::vector<double> shares(dim);
  for (std::size_t a = 0; a < dim; ++a) {
    const double* q = queries.scatter.row(static_cast<std::int64_t>(a));
    const double* k = keys.scatter.row(static_cast<std::int64_t>(a));
    for (std::size_t b = 0; b < dim; ++b)
      shares[a] += q[b] / n_q * (k[b] / n_k + keys.mean[a] * keys.mean[b]) +
                   queries.mean[a] * queries.mean[b] * k[b] / n_k;
  }
  return shares;
}

// Mean resultant length |mean z| / mean |z| of the rotary pairs z, averaged with weights mean |z|.
double mean_concentration(std::span<const RotaryPair> pairs, double RotaryPair::*concentration,
                          double RotaryPair::*mean_abs) {
  double sum = 0;
  double weight = 0;
  for (const auto& pair : pairs) {
    if (!(pair.*mean_abs > 0)) continue;
    sum += pair.*concentration * pair.*mean_abs;
    weight += pair.*mean_abs;
  }
  return sum / weight;
}

// Participation ratio (tr M)^2 / tr M^2, an effective rank, without an eigendecomposition.
double participation_rank(const Matrix& matrix) {
  const double squares = dot(matrix.data, matrix.data);
  return squares > 0 ? trace(matrix) * trace(matrix) / squares : kNan;
}

}  // namespace

EffectiveRanks effective_ranks(std::vector<double> l) {
  EffectiveRanks ranks;
  if (l.empty() || !(l.front() > 0)) return ranks;
  const double least = kZeroEigenvalue * l.front();
  for (double& value : l) value = value < least ? 0 : value;
  const double total = sum(l);
  ranks.participation = total * total / dot(l, l);
  ranks.entropy = std::exp(entropy_of_weights(l));
  double reached = 0;
  std::size_t r = 0;
  while (r < l.size() && reached < kRankShare * total) reached += l[r++];
  ranks.rank_90 = static_cast<double>(r);
  ranks.entropy_top = entropy_of_weights(std::span(l).first(std::min(kTop, l.size()))) /
                      std::log(static_cast<double>(kTop));
  return ranks;
}

Matrix second_moment(const Moments& rows) {
  Matrix matrix = rows.scatter;
  for (double& x : matrix.data) x /= static_cast<double>(rows.count);
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    add_scaled(rows.mean[as_index(i)], rows.mean, {matrix.row(i), rows.mean.size()});
  return matrix;
}

// With the Cholesky factorization A = L L^T, A B has the eigenvalues of the symmetric L^T B L.
std::vector<double> product_spectrum(const Matrix& a, const Matrix& b) {
  const Matrix root = semidefinite_cholesky(a);
  Matrix transposed(root.cols, root.rows);
  for (std::int64_t i = 0; i < root.rows; ++i)
    for (std::int64_t j = 0; j <= i; ++j) transposed(j, i) = root(i, j);
  Matrix product = multiply(multiply(transposed, b), root);
  mirror_upper_triangle(product);  // rounding leaves it slightly asymmetric
  return leading_eigenpairs(product, 0).values;
}

CovarianceRanks covariance_ranks(const std::vector<double>& spectrum,
                                 std::span<const Moments> without) {
  CovarianceRanks side{effective_ranks(spectrum), static_cast<double>(spectrum.size())};
  for (const auto& others : without)
    side.participation_without.push_back(participation_rank(others.scatter));
  return side;
}

CovarianceRanks covariance_ranks(const Moments& rows) {
  return covariance_ranks(leading_eigenpairs(rows.scatter, 0).values, {});
}

void add_rank_columns(const std::string& name, const CovarianceRanks& side,
                      GeometryResult& result) {
  const auto& without = side.participation_without;
  result.columns["rank_participation_" + name] = {side.ranks.participation,
                                                  jackknife_error(without), without};
  result.set("rank_entropy_" + name, side.ranks.entropy);
  result.set("rank_entropy_share_" + name, side.ranks.entropy / side.dim);
  result.set("rank_90_" + name, side.ranks.rank_90);
  result.set("entropy_top_" + name, side.ranks.entropy_top);
}

void add_logit_columns(const Moments& queries, const Moments& keys, GeometryResult& result) {
  const Matrix of_queries = second_moment(queries);
  const Matrix of_keys = second_moment(keys);
  const EffectiveRanks ranks = effective_ranks(product_spectrum(of_queries, of_keys));
  result.set("logit_rank_90", ranks.rank_90);
  result.set("logit_rank_participation", ranks.participation);
  add_massive_dimensions("q", of_queries, result);
  add_massive_dimensions("k", of_keys, result);
}

void add_frequency_columns(const RotaryMoments& queries, const RotaryMoments& keys,
                           const RotaryEmbedding& rope, GeometryResult& result) {
  const auto by_dimension = score_variance_by_dimension(queries.rows, keys.rows);
  const double variance = sum(by_dimension);
  for (std::size_t p = 0; p < rope.pair_count(); ++p) {
    const auto [real, imaginary] = rope.pair_dimensions(p);
    RotaryPair pair;
    pair.inv_freq = rope.inv_freq[p];
    pair.mean_abs_q = queries.pair_abs[p];
    pair.mean_abs_k = keys.pair_abs[p];
    pair.concentration_q = std::abs(mean_of_rotary_pair(queries.rows, rope, p)) / pair.mean_abs_q;
    pair.concentration_k = std::abs(mean_of_rotary_pair(keys.rows, rope, p)) / pair.mean_abs_k;
    pair.frequency_use = (by_dimension[real] + by_dimension[imaginary]) / variance;
    result.pairs.push_back(pair);
  }
  result.set("concentration_q", mean_concentration(result.pairs, &RotaryPair::concentration_q,
                                                   &RotaryPair::mean_abs_q));
  result.set("concentration_k", mean_concentration(result.pairs, &RotaryPair::concentration_k,
                                                   &RotaryPair::mean_abs_k));
  // Cross terms between rotary pairs can make a share negative; the entropy treats it as 0.
  std::vector<RotaryPair> by_speed = result.pairs;
  std::ranges::stable_sort(by_speed, {}, &RotaryPair::inv_freq);
  std::vector<double> shares;
  double slow = 0;
  for (std::size_t i = 0; i < by_speed.size(); ++i) {
    shares.push_back(std::max(0.0, by_speed[i].frequency_use));
    if (4 * i < by_speed.size()) slow += by_speed[i].frequency_use;
  }
  result.set("frequency_use_entropy", entropy_of_weights(shares));
  result.set("frequency_use_slow", slow);
}

// The RoPE phase at distance D = block * width + rest is the product of the phases at block * width
// and at rest, so one matrix product (blocks, 2 pairs) x (2 pairs, width) gives all scores.
std::vector<double> mean_score_by_distance(const Moments& queries, const Moments& keys,
                                           const RotaryEmbedding& rope, double scale,
                                           std::int64_t distances) {
  const auto width = static_cast<std::int64_t>(std::ceil(std::sqrt(distances)));
  const auto blocks = (distances + width - 1) / width;
  const auto pairs = static_cast<std::int64_t>(rope.pair_count());
  Matrix left(blocks, 2 * pairs);
  Matrix right(2 * pairs, width);
  double unrotated = dot(queries.mean, keys.mean);
  for (std::int64_t p = 0; p < pairs; ++p) {
    const auto product = mean_of_rotary_pair(queries, rope, as_index(p)) *
                         std::conj(mean_of_rotary_pair(keys, rope, as_index(p)));
    unrotated -= product.real();
    const double omega = rope.inv_freq[as_index(p)];
    for (std::int64_t block = 0; block < blocks; ++block) {
      const auto turned = product * std::polar(1.0, omega * static_cast<double>(block * width));
      left(block, 2 * p) = turned.real();
      left(block, 2 * p + 1) = -turned.imag();
    }
    for (std::int64_t rest = 0; rest < width; ++rest) {
      right(2 * p, rest) = std::cos(omega * static_cast<double>(rest));
      right(2 * p + 1, rest) = std::sin(omega * static_cast<double>(rest));
    }
  }
  const Matrix rotated = multiply(left, right);
  std::vector<double> score(rotated.data.begin(), rotated.data.begin() + distances);
  const double factor = rope.attention_factor * rope.attention_factor;
  for (double& value : score) value = scale * (factor * value + unrotated);
  return score;
}

double DistanceBin::mean_log_distance() const {
  double total = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i)
    total += pairs[i] * std::log(static_cast<double>(low) + static_cast<double>(i));
  return total / pair_count();
}

void add_distance_preference_columns(const std::vector<double>& score,
                                     std::span<const DistanceBin> bins, GeometryResult& result) {
  const auto [least, most] = std::ranges::minmax_element(score);
  result.set("distance_preference", static_cast<double>(most - score.begin()));
  result.set("distance_preference_range", *most - *least);
  std::vector<double> preferred;
  std::vector<double> measured;
  for (const auto& bin : bins) {
    if (!(bin.mass > 0)) continue;
    const std::span<const double> in_bin(score.data() + bin.low, bin.pairs.size());
    preferred.push_back(dot(in_bin, bin.pairs) / bin.pair_count());
    measured.push_back(bin.log_mean_attention());
  }
  if (preferred.size() > 2) result.set("distance_preference_r", pearson_r(preferred, measured));
}

void add_attention_decay_columns(std::span<const DistanceBin> bins, std::int64_t length,
                                 GeometryResult& result) {
  struct WeightedPoint {
    double x, y, weight, se;
  };
  std::vector<WeightedPoint> points;
  for (const auto& bin : bins)
    if (bin.low >= kDecayFrom && kDecayParts * (bin.high - 1) <= length && bin.mass > 0)
      points.push_back(
          {bin.mean_log_distance(), bin.log_mean_attention(), bin.queries, bin.relative_se});
  if (points.size() < 3) return;  // two points would always fit
  double weight = 0, x_mean = 0, y_mean = 0;
  for (const auto& p : points) {
    weight += p.weight;
    x_mean += p.weight * p.x;
    y_mean += p.weight * p.y;
  }
  x_mean /= weight;
  y_mean /= weight;
  double xx = 0, xy = 0, yy = 0;
  for (const auto& p : points) {
    xx += p.weight * (p.x - x_mean) * (p.x - x_mean);
    xy += p.weight * (p.x - x_mean) * (p.y - y_mean);
    yy += p.weight * (p.y - y_mean) * (p.y - y_mean);
  }
  // Error propagation treats the bins as independent.
  double variance = 0;
  for (const auto& p : points) {
    const double derivative = p.weight * (p.x - x_mean) / xx;
    variance += derivative * derivative * p.se * p.se;
  }
  result.set("decay_exponent", xy / xx, std::sqrt(variance));
  result.set("decay_r2", xy * xy / (xx * yy));
}

}  // namespace qkscope
