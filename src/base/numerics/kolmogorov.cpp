// Kolmogorov-Smirnov test: the Kolmogorov distribution, and the distance D_n without sorting the
// sample. D_n is the maximum over the sorted sample of (i + 1) / n - Phi(x_i) and Phi(x_i) - i / n.
// Values are counted into 2816 bins over +-3.5 standard deviations. The counts before a bin and Phi
// at its edges bound the distance inside the bin; the largest distance at an edge is a lower bound
// of D_n. Only bins whose upper bound reaches the lower bound can hold the maximum: their values
// are collected, sorted and evaluated exactly.
// kolmogorov_distance_to_normal_reference() in reference.h is the plain version.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <vector>

#include "base/core/lazy_init.h"
#include "base/core/numbers.h"
#include "base/numerics/normal.h"
#include "base/numerics/products.h"
#include "base/numerics/sample_statistics.h"

namespace qkscope {
namespace {

// Error of Stirling's formula: ln(n!) - ln(n^n e^-n sqrt(2 pi n)).
double stirling_formula_error(double n) {
  if (n < 16)
    return log_gamma(n + 1) - (n + 0.5) * std::log(n) + n - 0.5 * std::log(2 * std::numbers::pi);
  const double square = 1 / (n * n);
  return (1.0 / 12 -
          square * (1.0 / 360 - square * (1.0 / 1260 - square * (1.0 / 1680 - square / 1188)))) /
         n;
}

// Term j of the one-sided sum, x / (x + j/n) C(n, j) (x + j/n)^j (1 - x - j/n)^(n - j), in Loader's
// saddle-point form of the binomial, which stays accurate for large n.
double smirnov_series_term(double n, double x, double j) {
  const double shift = n * x;
  if (j == 0) return std::exp(n * std::log1p(-x));
  const double rest = n - j;
  if (rest - shift <= 0) return 0;
  const double deviance =
      shift - j * std::log1p(shift / j) - rest * std::log1p(-shift / rest) - shift;
  const double stirling =
      stirling_formula_error(n) - stirling_formula_error(j) - stirling_formula_error(rest);
  return shift / (shift + j) * std::exp(stirling - deviance) *
         std::sqrt(n / (2 * std::numbers::pi * j * rest));
}

// Returns P(D_n+ >= x) of the one-sided statistic. The terms are bell-shaped in j, with a standard
// deviation near sqrt(n) / (4 x); `width` is half of it. If it is large, the sum of every s-th term
// times s is the same (trapezoidal rule, error below exp(-2 pi^2 (width / s)^2)).
double one_sided_smirnov_p(std::int64_t count, double x) {
  const auto n = to_double(count);
  const double last = std::floor(n * (1 - x));
  const double width = std::sqrt(n) / (8 * x);
  const bool ends_vanish = n * x > 2 * n * x * x + 60 && x < 0.25;
  const double step = ends_vanish ? std::max(1.0, std::floor(width / 8)) : 1.0;
  double sum = 0;
  for (double j = 0; j <= last; j += step) sum += smirnov_series_term(n, x, j);
  return step * sum;
}

// Durbin's matrix by Marsaglia, Tsang and Wang: P(D_n < d) is n! / n^n times an entry of the n-th
// power of a Hessenberg matrix of order 2 ceil(n d) - 1.
double durbin_cdf(std::int64_t n, double d) {
  const double nd = to_double(n) * d;
  const auto k = static_cast<std::int64_t>(std::ceil(nd));
  const double h = to_double(k) - nd;
  const std::int64_t m = 2 * k - 1;
  Matrix step(m, m);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < m; ++j) step(i, j) = i - j + 1 < 0 ? 0 : 1;
  for (std::int64_t i = 0; i < m; ++i) {
    step(i, 0) -= std::pow(h, to_double(i + 1));
    step(m - 1, i) -= std::pow(h, to_double(m - i));
  }
  if (2 * h - 1 > 0) step(m - 1, 0) += std::pow(2 * h - 1, to_double(m));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < m; ++j)
      for (std::int64_t g = 1; g <= i - j + 1; ++g) step(i, j) /= to_double(g);
  // Matrix power = step^n, with separate binary exponents to avoid overflow.
  Matrix power(m, m);
  for (std::int64_t i = 0; i < m; ++i) power(i, i) = 1;
  int power_exponent = 0;
  int step_exponent = 0;
  constexpr int kShift = 400;
  const auto limit_exponent = [&](Matrix& matrix, int& exponent) {
    if (!(matrix(k - 1, k - 1) > std::ldexp(1.0, kShift))) return;
    for (double& value : matrix.data) value = std::ldexp(value, -kShift);
    exponent += kShift;
  };
  for (std::int64_t bits = n; bits > 0; bits /= 2) {
    if (bits % 2 == 1) {
      power = multiply(power, step);
      power_exponent += step_exponent;
      limit_exponent(power, power_exponent);
    }
    step = multiply(step, step);
    step_exponent *= 2;
    limit_exponent(step, step_exponent);
  }
  double p = power(k - 1, k - 1);
  for (std::int64_t i = 1; i <= n; ++i) {
    p *= to_double(i) / to_double(n);
    if (p < std::ldexp(1.0, -kShift)) {
      p = std::ldexp(p, kShift);
      power_exponent -= kShift;
    }
  }
  return std::ldexp(p, power_exponent);
}

// Pelz and Good: P(sqrt(n) D_n <= z) to order n^(-3/2), in the form that converges for small z.
double pelz_good_cdf(double n, double d) {
  const double z = std::sqrt(n) * d;
  const double z2 = z * z;
  const double z4 = z2 * z2;
  const double z6 = z4 * z2;
  const double pi2 = std::numbers::pi * std::numbers::pi;
  if (pi2 / (8 * z2) > 700) return 0;
  double k0 = 0;
  double k1 = 0;
  double k2 = 0;
  double k3 = 0;
  const int terms = static_cast<int>(std::ceil(16 * z / std::numbers::pi)) + 1;
  for (int k = terms; k >= 1; --k) {
    const double u = pi2 * (k - 0.5) * (k - 0.5);
    const double e = std::exp(-u / (2 * z2));
    k0 += e;
    k1 += (u - z2) * e;
    k2 += (6 * z6 + 2 * z4 + (2 * z4 - 5 * z2) * u + (1 - 2 * z2) * u * u) * e;
    k3 += (-30 * z6 - 90 * z6 * z2 + (135 * z4 - 96 * z6) * u + (212 * z4 - 60 * z2) * u * u +
           (5 - 30 * z2) * u * u * u) *
          e;
  }
  double even2 = 0;
  double even3 = 0;
  for (int k = terms; k >= 1; --k) {
    const double u = pi2 * k * k;
    const double e = std::exp(-u / (2 * z2));
    even2 += u * e;
    even3 += (3 * u * z2 - u * u) * e;
  }
  const double root = std::sqrt(2 * std::numbers::pi);
  return root *
         (k0 / z + k1 / (6 * z4) / std::sqrt(n) + (k2 / (72 * z6 * z) - even2 / (36 * z2 * z)) / n +
          (k3 / (6480 * z6 * z4) + even3 / (216 * z6)) / (n * std::sqrt(n)));
}

// Half-width of the histogram in standard deviations; values beyond it are in the outermost bins.
constexpr double kRange = 3.5;
constexpr std::size_t kNormalBins = 2816;  // a multiple of kLanes below
constexpr double kRounding = 1e-6;         // rounding error of the bounds

// Standard normal CDF at the bin edges; the outermost bins extend to infinity.
const std::vector<double>& cdf_at_bin_edges() {
  return lazy_init_lock_free([] {
    std::vector<double> edges(kNormalBins + 1);
    for (std::size_t i = 0; i <= kNormalBins; ++i)
      edges[i] = normal_cdf(-kRange + 2 * kRange * to_double(i) / kNormalBins);
    edges.front() = 0;
    edges.back() = 1;
    return edges;
  });
}

// Returns Phi((value - centre) * scale) for every value.
std::vector<double> normal_cdf_of_values(std::span<const double> values, double centre,
                                         double scale) {
  std::vector<double> cdf;
  cdf.reserve(values.size());
  for (const double value : values)
    cdf.push_back(std::fabs((value - centre) * scale) * (1 / std::numbers::sqrt2));
  erfc_in_place(cdf);
  for (std::size_t i = 0; i < values.size(); ++i)
    cdf[i] = values[i] < centre ? 0.5 * cdf[i] : 1 - 0.5 * cdf[i];
  return cdf;
}

// Bins of equal width in ascending order, starting at `low`. Values outside the range are counted
// in the first or last bin.
struct EqualWidthBins {
  double low;
  double scale;  // bins per unit
  std::size_t size;

  // Plain comparisons instead of std::clamp(), because GCC vectorises them better.
  std::uint16_t bin_of(double value) const {
    const double last = to_double(size - 1);
    double bin = (value - low) * scale;
    bin = bin > last ? last : bin;
    bin = bin > 0 ? bin : 0;
    return static_cast<std::uint16_t>(static_cast<std::int32_t>(bin));
  }
};

struct Histogram {
  std::vector<std::uint16_t> bin;    // (values)
  std::vector<std::int32_t> before;  // (bins + 1): number of values in lower bins

  Histogram(std::span<const double> values, const EqualWidthBins& bins)
      : bin(values.size()), before(bins.size + 1) {
    for (std::size_t i = 0; i < bin.size(); ++i) bin[i] = bins.bin_of(values[i]);
    for (const auto number : bin) ++before[number + std::size_t{1}];
    std::partial_sum(before.begin(), before.end(), before.begin());
  }
  double count_in_bin(std::size_t number) const { return before[number + 1] - before[number]; }
};

// Returns the values in the marked bins, sorted. The copy is branch-free, because branches on
// random data would be mispredicted.
std::vector<double> sorted_values_in_bins(std::span<const double> values,
                                          const Histogram& histogram,
                                          std::span<const std::uint32_t> marked) {
  std::vector<double> members(values.size() + 1);
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    members[count] = values[i];
    count += marked[histogram.bin[i]];
  }
  members.resize(count);
  std::ranges::sort(members);
  return members;
}

}  // namespace

double kolmogorov_p_value(std::int64_t count, double d) {
  const auto n = to_double(count);
  const double nd = n * d;
  if (d >= 1) return 0;
  if (nd <= 0.5) return 1;
  if (nd <= 1)  // exact for one point per cell: n! (2d - 1/n)^n
    return 1 - std::exp(stirling_formula_error(n) + 0.5 * std::log(2 * std::numbers::pi * n) - n +
                        n * std::log(2 * nd - 1));
  if (nd >= n - 1) return 2 * std::exp(n * std::log1p(-d));
  const double ndd = nd * d;
  if (ndd >= 370) return 0;
  const bool upper_tail = d >= 0.5 || ndd >= (count <= 140 ? 4.0 : 2.2);
  if (upper_tail) return std::min(1.0, 2 * one_sided_smirnov_p(count, d));
  if (count <= 140 || (count <= 100000 && nd * std::sqrt(d) <= 1.4))
    return std::clamp(1 - durbin_cdf(count, d), 0.0, 1.0);
  return std::clamp(1 - pelz_good_cdf(n, d), 0.0, 1.0);
}

double kolmogorov_distance_to_normal(std::span<const double> values, double centre, double scale) {
  const auto& edges = cdf_at_bin_edges();
  const auto bins = edges.size() - 1;
  const Histogram histogram(
      values, {centre - kRange / scale, scale * (to_double(bins) / (2 * kRange)), bins});
  const auto n = to_double(values.size());
  std::vector<double> share(bins + 1);  // fraction of the values in lower bins
  for (std::size_t bin = 0; bin <= bins; ++bin) share[bin] = histogram.before[bin] * (1 / n);
  // Largest distance at a bin edge, a lower bound of the statistic D_n; kLanes maxima, for SIMD.
  constexpr std::size_t kLanes = 8;
  double largest[kLanes] = {};
  for (std::size_t bin = 0; bin < bins; bin += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      largest[lane] = std::max(largest[lane], std::fabs(share[bin + lane] - edges[bin + lane]));
  const double lower_bound = *std::ranges::max_element(largest) - kRounding;
  std::vector<std::uint32_t> marked(bins);
  for (std::size_t bin = 0; bin < bins; ++bin)
    marked[bin] =
        std::max(share[bin + 1] - edges[bin], edges[bin + 1] - share[bin]) >= lower_bound ? 1 : 0;
  const auto cdf =
      normal_cdf_of_values(sorted_values_in_bins(values, histogram, marked), centre, scale);
  double distance = 0;
  const double* next = cdf.data();
  for (std::size_t bin = 0; bin < bins; ++bin) {
    if (marked[bin] == 0) continue;
    for (double i = histogram.before[bin]; i < histogram.before[bin + 1]; ++i, ++next)
      distance = std::max({distance, (i + 1) / n - *next, *next - i / n});
  }
  return distance;
}

// Youden's J without sorting both samples: counts per bin give an upper bound on J inside every
// bin, and only bins with a bound above the best J at a bin edge are sorted and scanned.
double youden_j(std::span<const double> upper, std::span<const double> lower) {
  constexpr std::size_t kBins = 1024;
  const auto [upper_low, upper_high] = std::minmax_element(upper.begin(), upper.end());
  const auto [lower_low, lower_high] = std::minmax_element(lower.begin(), lower.end());
  const double range = std::max(*upper_high, *lower_high) - std::min(*upper_low, *lower_low);
  const EqualWidthBins bins{std::min(*upper_low, *lower_low), range > 0 ? kBins / range : 0, kBins};
  const Histogram upper_bins(upper, bins);
  const Histogram lower_bins(lower, bins);
  const auto nu = to_double(upper.size());
  const auto nl = to_double(lower.size());
  // Youden's J at x is (fraction of `lower` values <= x) - (fraction of `upper` values <= x).
  double best = 0;
  double j = 0;
  std::vector<double> bound(kBins);
  std::vector<double> j_before(kBins);
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    j_before[bin] = j;
    bound[bin] = j + lower_bins.count_in_bin(bin) / nl;
    j += lower_bins.count_in_bin(bin) / nl - upper_bins.count_in_bin(bin) / nu;
    best = std::max(best, j);
  }
  std::vector<std::uint32_t> marked(kBins);
  for (std::size_t bin = 0; bin < kBins; ++bin) marked[bin] = bound[bin] > best ? 1 : 0;
  const auto from_lower = sorted_values_in_bins(lower, lower_bins, marked);
  const auto from_upper = sorted_values_in_bins(upper, upper_bins, marked);
  std::size_t passed = 0;        // number of values <= x in from_upper
  std::size_t lower_before = 0;  // number of values in lower bins
  std::size_t upper_before = 0;
  std::size_t bin = kBins;
  for (std::size_t i = 0; i < from_lower.size(); ++i) {
    const double x = from_lower[i];
    if (const auto here = bins.bin_of(x); here != bin) {
      bin = here;
      lower_before = i;
      while (passed < from_upper.size() && bins.bin_of(from_upper[passed]) < bin) ++passed;
      upper_before = passed;
    }
    while (passed < from_upper.size() && from_upper[passed] <= x) ++passed;
    if (i + 1 < from_lower.size() && from_lower[i + 1] == x) continue;
    best = std::max(best, j_before[bin] + to_double(i + 1 - lower_before) / nl -
                              to_double(passed - upper_before) / nu);
  }
  return best;
}

}  // namespace qkscope
