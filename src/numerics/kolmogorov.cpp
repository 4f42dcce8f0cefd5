#include "numerics/kolmogorov.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <vector>

#include "core/made_once.h"
#include "numerics/log_gamma.h"
#include "numerics/normal.h"
#include "numerics/products.h"

namespace qkscope {
namespace {

constexpr double kPi = std::numbers::pi;

// ln(n!) - ln(n^n e^-n sqrt(2 pi n)): what Stirling's formula leaves out.
double stirling_rest(double n) {
  if (n < 16) return log_gamma(n + 1) - (n + 0.5) * std::log(n) + n - 0.5 * std::log(2 * kPi);
  const double square = 1 / (n * n);
  return (1.0 / 12 -
          square * (1.0 / 360 - square * (1.0 / 1260 - square * (1.0 / 1680 - square / 1188)))) /
         n;
}

// Term j of the one-sided sum, x / (x + j/n) C(n, j) (x + j/n)^j (1 - x - j/n)^(n - j), as a
// binomial probability in the form that keeps its digits for large n.
double one_sided_term(double n, double x, double j) {
  const double shift = n * x;
  if (j == 0) return std::exp(n * std::log1p(-x));
  const double rest = n - j;
  if (rest - shift <= 0) return 0;
  const double deviance =
      shift - j * std::log1p(shift / j) - rest * std::log1p(-shift / rest) - shift;
  const double stirling = stirling_rest(n) - stirling_rest(j) - stirling_rest(rest);
  return shift / (shift + j) * std::exp(stirling - deviance) * std::sqrt(n / (2 * kPi * j * rest));
}

// P(D_n+ >= x). The terms are a smooth hill, about n / (4 sqrt(n) x) wide: once it is many terms
// wide, every s-th term times s is the same sum (its trapezoidal error is exp(-2 pi^2
// (width/s)^2)).
double one_sided_p(std::int64_t count, double x) {
  const auto n = static_cast<double>(count);
  const double last = std::floor(n * (1 - x));
  const double width = std::sqrt(n) / (8 * x);
  const bool ends_vanish = n * x > 2 * n * x * x + 60 && x < 0.25;
  const double step = ends_vanish ? std::max(1.0, std::floor(width / 8)) : 1.0;
  double sum = 0;
  for (double j = 0; j <= last; j += step) sum += one_sided_term(n, x, j);
  return step * sum;
}

// Durbin's matrix by Marsaglia, Tsang and Wang: P(D_n < d) is an entry of the n-th power of a
// banded matrix of order 2 ceil(n d) - 1.
double durbin_cdf(std::int64_t n, double d) {
  const double nd = static_cast<double>(n) * d;
  const auto k = static_cast<std::int64_t>(std::ceil(nd));
  const double h = static_cast<double>(k) - nd;
  const std::int64_t m = 2 * k - 1;
  Matrix step(m, m);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < m; ++j) step(i, j) = i - j + 1 < 0 ? 0 : 1;
  for (std::int64_t i = 0; i < m; ++i) {
    step(i, 0) -= std::pow(h, static_cast<double>(i + 1));
    step(m - 1, i) -= std::pow(h, static_cast<double>(m - i));
  }
  if (2 * h - 1 > 0) step(m - 1, 0) += std::pow(2 * h - 1, static_cast<double>(m));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < m; ++j)
      for (std::int64_t g = 1; g <= i - j + 1; ++g) step(i, j) /= static_cast<double>(g);
  // power = step^n with its binary exponent kept apart.
  Matrix power(m, m);
  for (std::int64_t i = 0; i < m; ++i) power(i, i) = 1;
  int power_exponent = 0;
  int step_exponent = 0;
  constexpr int kShift = 400;
  for (std::int64_t bits = n; bits > 0; bits /= 2) {
    if (bits % 2 == 1) {
      power = multiply(power, step);
      power_exponent += step_exponent;
      if (power(k - 1, k - 1) > std::ldexp(1.0, kShift)) {
        for (double& value : power.data) value = std::ldexp(value, -kShift);
        power_exponent += kShift;
      }
    }
    step = multiply(step, step);
    step_exponent *= 2;
    if (step(k - 1, k - 1) > std::ldexp(1.0, kShift)) {
      for (double& value : step.data) value = std::ldexp(value, -kShift);
      step_exponent += kShift;
    }
  }
  double p = power(k - 1, k - 1);
  for (std::int64_t i = 1; i <= n; ++i) {
    p *= static_cast<double>(i) / static_cast<double>(n);
    if (p < std::ldexp(1.0, -kShift)) {
      p = std::ldexp(p, kShift);
      power_exponent -= kShift;
    }
  }
  return std::ldexp(p, power_exponent);
}

// Pelz and Good: P(sqrt(n) D_n <= z) to the order n^(-3/2), in the form that converges for small z.
double pelz_good_cdf(double n, double d) {
  const double z = std::sqrt(n) * d;
  const double z2 = z * z;
  const double z4 = z2 * z2;
  const double z6 = z4 * z2;
  const double pi2 = kPi * kPi;
  if (pi2 / (8 * z2) > 700) return 0;
  double k0 = 0;
  double k1 = 0;
  double k2 = 0;
  double k3 = 0;
  const int terms = static_cast<int>(std::ceil(16 * z / kPi)) + 1;
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
  const double root = std::sqrt(2 * kPi);
  return root *
         (k0 / z + k1 / (6 * z4) / std::sqrt(n) + (k2 / (72 * z6 * z) - even2 / (36 * z2 * z)) / n +
          (k3 / (6480 * z6 * z4) + even3 / (216 * z6)) / (n * std::sqrt(n)));
}

// Standardised values rarely leave this range; those that do share the outermost bins.
constexpr double kRange = 5;
constexpr std::size_t kBins = 4096;
constexpr float kRounding = 1e-6F;  // of the bounds, which are in single precision

void bins_under_normal(std::span<const double> values, std::uint16_t* bin) {
  bins_of(values, -kRange, kBins / (2 * kRange), kBins - 1, bin);
}

// Phi at the edges of the bins; the outermost reach to infinity.
const std::array<float, kBins + 1>& cdf_at_edges() {
  const auto& cdf = made_once([] {
    std::array<float, kBins + 1> edges;
    for (std::size_t i = 0; i <= kBins; ++i)
      edges[i] =
          static_cast<float>(normal_cdf(-kRange + 2 * kRange * static_cast<double>(i) / kBins));
    edges.front() = 0;
    edges.back() = 1;
    return edges;
  });
  return cdf;
}

// One vector register of every CPU we know.
using FourFloats = float __attribute__((vector_size(16)));
using FourIntegers = std::int32_t __attribute__((vector_size(16)));

FourFloats four_at(const float* from) {
  FourFloats value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

FourFloats larger(const FourFloats& x, const FourFloats& y) {
  return x > y ? x : y;
}

// Values counted into bins. Bin order is value order, so a bound for the distance inside a bin
// follows from the counts before it, and only bins with a high bound need their values.
class NormalBins {
 public:
  explicit NormalBins(std::span<const double> values) : bin_(values.size()) {
    bins_under_normal(values, bin_.data());
    for (const auto bin : bin_) ++before_[bin + std::size_t{1}];
    std::int32_t count = 0;
    for (auto& before : before_) before = count += before;
    take_bounds(1 / static_cast<float>(values.size()));
  }

  // All values of bins in which the distance may be largest, ascending.
  std::vector<double> members(std::span<const double> values) const {
    // Every value is written, the next one over it where it is not wanted: whether it is cannot be
    // foreseen.
    const auto found = std::make_unique_for_overwrite<double[]>(values.size());
    std::size_t count = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      found[count] = values[i];
      count += bound_[bin_[i]] >= reached_ ? 1 : 0;
    }
    std::sort(found.get(), found.get() + count);
    return {found.get(), found.get() + count};
  }

  std::int64_t before(std::size_t bin) const { return before_[bin]; }

 private:
  void take_bounds(float share) {
    const auto& cdf = cdf_at_edges();
    const auto share_before = [&](std::size_t bin) {
      FourIntegers counts;
      std::memcpy(&counts, before_.data() + bin, sizeof counts);
      return share * __builtin_convertvector(counts, FourFloats);
    };
    FourFloats reached{};
    for (std::size_t bin = 0; bin < kBins; bin += 4) {
      const auto low = four_at(cdf.data() + bin);
      const auto high = four_at(cdf.data() + bin + 1);
      const auto before = share_before(bin);
      const auto after = share_before(bin + 1);
      const auto bound = larger(after - low, high - before);
      std::memcpy(bound_.data() + bin, &bound, sizeof bound);
      reached = larger(reached, larger(after - high, low - before));  // at the edges
    }
    reached_ = std::max({reached[0], reached[1], reached[2], reached[3]}) - kRounding;
  }

  std::vector<std::uint16_t> bin_;                // (values)
  std::array<std::int32_t, kBins + 1> before_{};  // values in the bins before
  std::array<float, kBins> bound_;                // of the distance inside the bin
  float reached_ = 0;                             // the distance is at least this
};

// z[i] becomes Phi(z[i]).
std::vector<double> normal_cdf_of(std::vector<double> z) {
  std::vector<double> tail;
  tail.reserve(z.size());
  for (const double value : z) tail.push_back(std::fabs(value) * (1 / std::numbers::sqrt2));
  erfc_in_place(tail);
  for (std::size_t i = 0; i < z.size(); ++i) z[i] = z[i] < 0 ? 0.5 * tail[i] : 1 - 0.5 * tail[i];
  return z;
}

}  // namespace

double kolmogorov_p(std::int64_t count, double d) {
  const auto n = static_cast<double>(count);
  const double nd = n * d;
  if (d >= 1) return 0;
  if (nd <= 0.5) return 1;
  if (nd <= 1)  // every point in its own cell: n! (2d - 1/n)^n
    return 1 -
           std::exp(stirling_rest(n) + 0.5 * std::log(2 * kPi * n) - n + n * std::log(2 * nd - 1));
  if (nd >= n - 1) return 2 * std::exp(n * std::log1p(-d));
  const double ndd = nd * d;
  if (ndd >= 370) return 0;
  const bool upper_tail = d >= 0.5 || ndd >= (count <= 140 ? 4.0 : 2.2);
  if (upper_tail) return std::min(1.0, 2 * one_sided_p(count, d));
  if (count <= 140 || (count <= 100000 && nd * std::sqrt(d) <= 1.4))
    return std::clamp(1 - durbin_cdf(count, d), 0.0, 1.0);
  return std::clamp(1 - pelz_good_cdf(n, d), 0.0, 1.0);
}

double kolmogorov_distance_to_normal(std::span<const double> values) {
  const NormalBins bins(values);
  const auto members = bins.members(values);
  const auto cdf = normal_cdf_of(members);
  const auto n = static_cast<double>(values.size());
  double distance = 0;
  std::int64_t below = 0;  // values before the next member
  std::vector<std::uint16_t> bin(members.size());
  bins_under_normal(members, bin.data());
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i == 0 || bin[i] != bin[i - 1]) below = bins.before(bin[i]);
    distance = std::max({distance, static_cast<double>(below + 1) / n - cdf[i],
                         cdf[i] - static_cast<double>(below) / n});
    ++below;
  }
  return distance;
}

}  // namespace qkscope
