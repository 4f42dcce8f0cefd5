#include "base/numerics/correlation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/numerics/normal.h"
#include "base/numerics/sample_statistics.h"

namespace qkscope {
namespace {

// Returns ln Gamma(a + 1/2) - ln Gamma(a). For large a, a series in 1/a avoids cancellation.
double log_gamma_step(double a) {
  if (a < 20) return log_gamma(a + 0.5) - log_gamma(a);
  const double inverse = 1 / a;
  const double square = inverse * inverse;
  const double series =
      inverse * (-1.0 / 8 + square * (1.0 / 192 + square * (-1.0 / 640 + square * (17.0 / 14336))));
  return 0.5 * std::log(a) + series;
}

// Continued fraction of I_x(a, b) by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kMaxSteps = 100000;
  double c = 1;
  double d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
  double h = d;
  for (int m = 1; m <= kMaxSteps; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 + even * d;
    c = 1 + even / c;
    d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
    if (std::fabs(c) < kTiny) c = kTiny;
    h *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 + odd * d;
    c = 1 + odd / c;
    d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
    if (std::fabs(c) < kTiny) c = kTiny;
    h *= d * c;
    if (std::fabs(d * c - 1) < 1e-16) return h;
  }
  failure("the incomplete beta function I_{}({}, {}) did not converge", x, a, b);
}

// Returns ranks from 0; tied values have their mean rank.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t i, std::size_t j) { return values[i] < values[j]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    auto end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = 0.5 * static_cast<double>(begin + end - 1);
    for (auto i = begin; i < end; ++i) ranks[order[i]] = rank;
    begin = end;
  }
  return ranks;
}

}  // namespace

double log_incomplete_beta_half(double a, double x, double one_minus_x) {
  if (x <= 0) return -std::numeric_limits<double>::infinity();
  if (one_minus_x <= 0) return 0;
  // ln(x^a (1 - x)^(1/2) / B(a, 1/2))
  const double front = a * (one_minus_x < 0.5 ? std::log1p(-one_minus_x) : std::log(x)) +
                       0.5 * std::log(one_minus_x) + log_gamma_step(a) -
                       0.5 * std::log(std::numbers::pi);
  if (x < (a + 1) / (a + 2.5)) return front + std::log(beta_fraction(a, 0.5, x) / a);
  return std::log1p(-std::exp(front) * beta_fraction(0.5, a, one_minus_x) / 0.5);
}

double log_p_of_correlation(double r, std::int64_t n) {
  if (std::isnan(r) || n < 2) return kNan;
  if (n == 2) return 0;  // two points are always collinear: p = 1
  const double x = (1 - r) * (1 + r);
  return log_incomplete_beta_half(0.5 * static_cast<double>(n - 2), x, r * r);
}

double mean_abs_r_by_chance(std::int64_t n) {
  if (n < 2) return kNan;
  // Gamma((n - 1) / 2) / (sqrt(pi) Gamma(n / 2))
  return std::exp(-log_gamma_step(0.5 * static_cast<double>(n - 1))) / std::sqrt(std::numbers::pi);
}

double student_t_quantile(double two_sided_p, std::int64_t degrees) {
  QKSCOPE_ASSERT(two_sided_p > 0 && two_sided_p < 1 && degrees > 0);
  // The p value of t is I_x(nu / 2, 1/2) with x = nu / (nu + t^2).
  const auto nu = static_cast<double>(degrees);
  const auto too_likely = [&](double t) {
    const double square = t * t / nu;
    return log_incomplete_beta_half(0.5 * nu, 1 / (1 + square), square / (1 + square)) >
           std::log(two_sided_p);
  };
  double low = 0;
  double high = 1;
  while (too_likely(high)) high *= 2;
  for (double middle = 0.5 * high; middle > low && middle < high; middle = 0.5 * (low + high))
    (too_likely(middle) ? low : high) = middle;
  return high;
}

Correlation correlation(double xy, double xx, double yy, std::int64_t n) {
  if (!(xx > 0) || !(yy > 0) || n < 2) return {kNan, kNan, kNan};
  Correlation result;
  result.r = std::clamp(xy / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0);
  const double log_p = log_p_of_correlation(result.r, n);
  result.p = std::exp(log_p);
  result.log10_p = log_p / std::numbers::ln10;
  return result;
}

PairCorrelation correlate(std::span<const double> x, std::span<const double> y) {
  std::vector<double> both_x;
  std::vector<double> both_y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) || std::isnan(y[i])) continue;
    both_x.push_back(x[i]);
    both_y.push_back(y[i]);
  }
  PairCorrelation result{std::ssize(both_x), {kNan, kNan, kNan}, {kNan, kNan, kNan}};
  if (result.n < 3) return result;
  const auto pearson = [&](std::span<const double> a, std::span<const double> b) {
    const auto [aa, ab, bb] = centred_products(a, b);
    return correlation(ab, aa, bb, result.n);
  };
  result.pearson = pearson(both_x, both_y);
  result.spearman = pearson(ranks_of(both_x), ranks_of(both_y));
  return result;
}

}  // namespace qkscope
