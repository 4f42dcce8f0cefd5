#include "base/numerics/kolmogorov.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <vector>

#include "base/core/made_once.h"
#include "base/numerics/log_gamma.h"
#include "base/numerics/normal.h"
#include "base/numerics/products.h"

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
constexpr double kRange = 3.5;
constexpr std::size_t kBins = 2816;
constexpr float kRounding = 1e-6F;  // of the bounds, which are in single precision

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
using EightBins = std::uint16_t __attribute__((vector_size(16)));
using EightBytes = std::uint8_t __attribute__((vector_size(8)));

template <typename To, typename From>
To load(const From* from) {
  To value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Neighbouring bins [first, last].
struct BinRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

// Values counted into bins. Bin order is value order, so a bound for the distance inside a bin
// follows from the counts before it, and only bins with a high bound need their values.
class NormalBins {
 public:
  NormalBins(std::span<const double> values, double centre, double scale)
      : values_(values), bin_(std::make_unique_for_overwrite<std::uint16_t[]>(values.size())) {
    bins_of(values, centre - kRange / scale, scale * (kBins / (2 * kRange)), kBins - 1, bin_.get());
    count_bins();
    reached_ = distance_bounds(before_, cdf_at_edges(), bound_) - kRounding;
  }

  // The bins in which the distance may be largest, and some between them.
  std::vector<BinRange> ranges() const;
  // All values of ranges, ascending, one range after the other.
  std::vector<double> members(std::span<const BinRange> ranges) const;
  // Values in the bins before.
  std::int64_t before(std::size_t bin) const { return before_[bin]; }
  std::int64_t count(const BinRange& range) const {
    return before_[range.last + std::size_t{1}] - before_[range.first];
  }

 private:
  void count_bins();

  std::span<const double> values_;
  std::unique_ptr<std::uint16_t[]> bin_;          // (values)
  std::array<std::int32_t, kBins + 1> before_{};  // values in the bins before
  std::array<float, kBins> bound_;                // of the distance inside the bin
  float reached_ = 0;                             // the distance is at least this
};

void NormalBins::count_bins() {
  std::int32_t* const counts = before_.data() + 1;
  std::size_t i = 0;
  for (; i + 4 <= values_.size(); i += 4) {
    const auto four = load<std::uint64_t>(bin_.get() + i);  // in any order
    ++counts[four & 0xffff];
    ++counts[four >> 16 & 0xffff];
    ++counts[four >> 32 & 0xffff];
    ++counts[four >> 48];
  }
  for (; i < values_.size(); ++i) ++counts[bin_[i]];
  std::int32_t before = 0;
  for (auto& count : before_) count = before += count;
}

std::vector<BinRange> NormalBins::ranges() const {
  constexpr std::size_t kGap = 8;  // bins between two ranges, at least
  std::vector<BinRange> found;
  for (std::size_t four = 0; four < kBins; four += 4) {
    const auto high = load<FourFloats>(bound_.data() + four) >= reached_;
    const auto any = load<std::array<std::uint64_t, 2>>(&high);
    if ((any[0] | any[1]) == 0) continue;
    for (auto bin = four; bin < four + 4; ++bin) {
      if (!(bound_[bin] >= reached_)) continue;
      const auto number = static_cast<std::uint16_t>(bin);
      if (found.empty() || bin > found.back().last + kGap) found.push_back({number, number});
      found.back().last = number;
    }
  }
  return found;
}

// Which of eight values are members: a byte of each that is not 0.
struct Hits {
  std::size_t first;
  std::uint64_t bytes;
};

// Four ranges, mostly all there are, in registers; no bin is in those that are left over.
struct FourRanges {
  static constexpr std::size_t kRanges = 4;
  EightBins first[kRanges];
  EightBins length[kRanges];

  explicit FourRanges(std::span<const BinRange> ranges) {
    for (std::size_t i = 0; i < kRanges; ++i) {
      const BinRange range = i < ranges.size() ? ranges[i] : BinRange{kBins, kBins};
      first[i] = EightBins{} + range.first;
      length[i] = EightBins{} + static_cast<std::uint16_t>(range.last - range.first);
    }
  }

  std::uint64_t hits(const EightBins& bins) const {
    EightBins inside{};
    for (std::size_t i = 0; i < kRanges; ++i) inside |= bins - first[i] <= length[i];
    const auto bytes = __builtin_convertvector(inside, EightBytes);
    return load<std::uint64_t>(&bytes);
  }
};

std::vector<double> NormalBins::members(std::span<const BinRange> ranges) const {
  std::array<std::int32_t, kBins> place;  // of the next value of each bin
  std::int32_t total = 0;
  for (const auto& range : ranges) {
    for (std::size_t bin = range.first; bin <= range.last; ++bin)
      place[bin] = total + before_[bin] - before_[range.first];
    total += static_cast<std::int32_t>(this->count(range));
  }
  std::vector<double> found(static_cast<std::size_t>(total));
  const auto take = [&](std::size_t i) {
    found[static_cast<std::size_t>(place[bin_[i]]++)] = values_[i];
  };
  // First the groups of eight that hold members, whether they do being hard to foresee.
  const auto groups = values_.size() / 8;
  const auto hits_of = std::make_unique_for_overwrite<Hits[]>(groups + 1);
  for (std::size_t next = 0; next < ranges.size(); next += FourRanges::kRanges) {
    const FourRanges four(ranges.subspan(next));
    std::size_t count = 0;
    for (std::size_t i = 0; i < groups; ++i) {
      hits_of[count] = {8 * i, four.hits(load<EightBins>(bin_.get() + 8 * i))};
      count += hits_of[count].bytes != 0 ? 1 : 0;
    }
    for (const Hits& group : std::span(hits_of.get(), count))
      for (auto bytes = group.bytes; bytes != 0;) {
        const auto byte = static_cast<std::size_t>(std::countr_zero(bytes)) / 8;
        take(group.first + byte);
        bytes &= ~(std::uint64_t{0xff} << 8 * byte);
      }
  }
  for (auto i = 8 * groups; i < values_.size(); ++i)
    for (const auto& range : ranges)
      if (bin_[i] >= range.first && bin_[i] <= range.last) take(i);
  auto begin = found.begin();
  for (const auto& range : ranges)
    for (std::size_t bin = range.first; bin <= range.last; ++bin) {
      const auto end = found.begin() + place[bin];
      std::sort(begin, end);
      begin = end;
    }
  return found;
}

// Phi of (value - centre) scale.
std::vector<double> normal_cdf_of(std::span<const double> values, double centre, double scale) {
  std::vector<double> cdf;
  cdf.reserve(values.size());
  for (const double value : values)
    cdf.push_back(std::fabs((value - centre) * scale) * (1 / std::numbers::sqrt2));
  erfc_in_place(cdf);
  for (std::size_t i = 0; i < values.size(); ++i)
    cdf[i] = values[i] < centre ? 0.5 * cdf[i] : 1 - 0.5 * cdf[i];
  return cdf;
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

double kolmogorov_distance_to_normal(std::span<const double> values, double centre, double scale) {
  const NormalBins bins(values, centre, scale);
  const auto ranges = bins.ranges();
  const auto cdf = normal_cdf_of(bins.members(ranges), centre, scale);
  const auto n = static_cast<double>(values.size());
  double distance = 0;
  const double* next = cdf.data();
  for (const auto& range : ranges) {
    auto below = static_cast<double>(bins.before(range.first));
    for (auto left = bins.count(range); left > 0; --left, ++next, ++below)
      distance = std::max(distance, std::max((below + 1) / n - *next, *next - below / n));
  }
  return distance;
}

}  // namespace qkscope
