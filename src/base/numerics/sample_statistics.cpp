#include "base/numerics/sample_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/numerics/normal.h"

namespace qkscope {
namespace {

// Returns ln Gamma(a + 1/2) - ln Gamma(a). For large a, a series in 1/a avoids cancellation.
double log_gamma_ratio(double a) {
  if (a < 20) return log_gamma(a + 0.5) - log_gamma(a);
  const double inverse = 1 / a;
  const double square = inverse * inverse;
  const double series =
      inverse * (-1.0 / 8 + square * (1.0 / 192 + square * (-1.0 / 640 + square * (17.0 / 14336))));
  return 0.5 * std::log(a) + series;
}

// Continued fraction of the incomplete beta function I_x(a, b), by Lentz's method.
double beta_continued_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kMaxSteps = 100000;
  double c = 1;
  double d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
  double h = d;
  // Multiplies the value h of the continued fraction by the factor that adds one more term.
  const auto advance = [&](double term) {
    d = 1 + term * d;
    c = 1 + term / c;
    d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
    if (std::fabs(c) < kTiny) c = kTiny;
    h *= d * c;
  };
  for (int m = 1; m <= kMaxSteps; ++m) {
    advance(m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)));
    advance(-(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)));
    if (std::fabs(d * c - 1) < 1e-16) return h;
  }
  throw_failure("the incomplete beta function I_{}({}, {}) did not converge", x, a, b);
}

// Returns ranks from 0; tied values have their mean rank.
std::vector<double> ranks_with_mean_ties(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t i, std::size_t j) { return values[i] < values[j]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    auto end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = 0.5 * to_double(begin + end - 1);
    for (auto i = begin; i < end; ++i) ranks[order[i]] = rank;
    begin = end;
  }
  return ranks;
}

// Returns ln of the regularised incomplete beta function I_x(a, 1/2), given x and 1 - x.
double log_incomplete_beta_half(double a, double x, double one_minus_x) {
  if (x <= 0) return -std::numeric_limits<double>::infinity();
  if (one_minus_x <= 0) return 0;
  // ln(x^a (1 - x)^(1/2) / B(a, 1/2))
  const double front = a * (one_minus_x < 0.5 ? std::log1p(-one_minus_x) : std::log(x)) +
                       0.5 * std::log(one_minus_x) + log_gamma_ratio(a) -
                       0.5 * std::log(std::numbers::pi);
  if (x < (a + 1) / (a + 2.5)) return front + std::log(beta_continued_fraction(a, 0.5, x) / a);
  return std::log1p(-std::exp(front) * beta_continued_fraction(0.5, a, one_minus_x) / 0.5);
}

// Centred sums of squares and products of two lists of equal length.
struct CentredProductSums {
  double xx = 0;
  double xy = 0;
  double yy = 0;
};

CentredProductSums sum_centred_products(std::span<const double> x, std::span<const double> y) {
  const auto n = to_double(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  CentredProductSums sums;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sums.xx += (x[i] - mean_x) * (x[i] - mean_x);
    sums.xy += (x[i] - mean_x) * (y[i] - mean_y);
    sums.yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return sums;
}

}  // namespace

double mean_of(const std::vector<double>& values) {
  if (values.empty()) return kNan;
  return std::accumulate(values.begin(), values.end(), 0.0) / to_double(values.size());
}

double standard_deviation_of(const std::vector<double>& values) {
  if (values.size() < 2) return kNan;
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / to_double(values.size() - 1));
}

double quantile_of(std::vector<double> values, double fraction) {
  if (values.empty()) return kNan;
  std::ranges::sort(values);
  const double place = fraction * to_double(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], place - to_double(below));
}

double pearson_r(const std::vector<double>& x, const std::vector<double>& y) {
  const auto [xx, xy, yy] = sum_centred_products(x, y);
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : kNan;
}

NormalityStatistics measure_normality(std::span<const double> values, PowerSums sums) {
  const auto n = to_double(values.size());
  // Power sums around 0 are accurate if the mean is small relative to the standard deviation;
  // otherwise the sums are recomputed around the mean.
  double centre = 0;
  if (sums.first * sums.first > 1e-4 * n * sums.second) {
    centre = sums.first / n;
    sums = central_power_sums(values, centre);
  }
  const double off = sums.first / n;  // mean relative to `centre`
  const double m2 = sums.second / n - off * off;
  const double m3 = sums.third / n - off * (3 * sums.second / n - 2 * off * off);
  const double m4 =
      sums.fourth / n - off * (4 * sums.third / n - off * (6 * sums.second / n - 3 * off * off));
  if (values.size() < 2 || !(m2 > 0)) return {kNan, kNan, kNan};
  NormalityStatistics result{kNan, kNan, kNan};
  if (values.size() > 2) result.skew = std::sqrt(n * (n - 1)) / (n - 2) * m3 / (m2 * std::sqrt(m2));
  if (values.size() > 3)
    result.excess_kurtosis =
        ((n * n - 1) * m4 / (m2 * m2) - 3 * (n - 1) * (n - 1)) / ((n - 2) * (n - 3));
  const double scale = 1 / std::sqrt(m2 * n / (n - 1));
  result.ks_p = kolmogorov_p_value(static_cast<std::int64_t>(values.size()),
                                   kolmogorov_distance_to_normal(values, centre + off, scale));
  return result;
}

double median(std::span<double> values) {
  const auto end =
      std::remove_if(values.begin(), values.end(), [](double x) { return std::isnan(x); });
  const auto count = end - values.begin();
  if (count == 0) return kNan;
  const auto middle = values.begin() + count / 2;
  std::nth_element(values.begin(), middle, end);
  if (count % 2 == 1) return *middle;
  return 0.5 * (*middle + *std::max_element(values.begin(), middle));
}

double log_p_value_of_correlation(double r, std::int64_t n) {
  if (std::isnan(r) || n < 2) return kNan;
  if (n == 2) return 0;  // two points are always collinear: p = 1
  const double x = (1 - r) * (1 + r);
  return log_incomplete_beta_half(0.5 * to_double(n - 2), x, r * r);
}

double expected_abs_r_under_null(std::int64_t n) {
  if (n < 2) return kNan;
  // For n independent rows, E|r| = Gamma((n - 1) / 2) / (sqrt(pi) Gamma(n / 2)).
  return std::exp(-log_gamma_ratio(0.5 * to_double(n - 1))) / std::sqrt(std::numbers::pi);
}

double student_t_critical_value(double two_sided_p, std::int64_t degrees) {
  QKSCOPE_ASSERT(two_sided_p > 0 && two_sided_p < 1 && degrees > 0);
  // Student's t with nu degrees of freedom: the two-sided p value of t is the incomplete beta
  // function I_x(nu / 2, 1/2) with x = nu / (nu + t^2).
  const auto nu = to_double(degrees);
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
  const double log_p = log_p_value_of_correlation(result.r, n);
  result.p = std::exp(log_p);
  result.log10_p = log_p / std::numbers::ln10;
  return result;
}

CorrelationCoefficients correlate_pairs(std::span<const double> x, std::span<const double> y) {
  std::vector<double> both_x;
  std::vector<double> both_y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) || std::isnan(y[i])) continue;
    both_x.push_back(x[i]);
    both_y.push_back(y[i]);
  }
  CorrelationCoefficients result{std::ssize(both_x), {kNan, kNan, kNan}, {kNan, kNan, kNan}};
  if (result.n < 3) return result;
  const auto pearson = [&](std::span<const double> a, std::span<const double> b) {
    const auto [aa, ab, bb] = sum_centred_products(a, b);
    return correlation(ab, aa, bb, result.n);
  };
  result.pearson = pearson(both_x, both_y);
  result.spearman = pearson(ranks_with_mean_ties(both_x), ranks_with_mean_ties(both_y));
  return result;
}

}  // namespace qkscope
