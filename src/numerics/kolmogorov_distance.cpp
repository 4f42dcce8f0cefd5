#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "numerics/kolmogorov.h"
#include "numerics/lanes.h"
#include "numerics/normal.h"

namespace qkscope {
namespace {

// Standardised values rarely leave this range; those that do share the outermost bins.
constexpr double kRange = 5;
constexpr std::size_t kBins = 4096;
constexpr float kRounding = 1e-6F;  // of the bounds, which are in single precision

std::uint16_t bin_of(double value) {
  const double scaled = (value + kRange) * (kBins / (2 * kRange));
  const double above = scaled > 0 ? scaled : 0;
  return static_cast<std::uint16_t>(
      static_cast<std::int32_t>(above < kBins - 1 ? above : kBins - 1));
}

// Phi at the edges of the bins; the outermost reach to infinity.
const std::array<float, kBins + 1>& cdf_at_edges() {
  static const auto cdf = [] {
    std::array<float, kBins + 1> edges;
    for (std::size_t i = 0; i <= kBins; ++i)
      edges[i] =
          static_cast<float>(normal_cdf(-kRange + 2 * kRange * static_cast<double>(i) / kBins));
    edges.front() = 0;
    edges.back() = 1;
    return edges;
  }();
  return cdf;
}

FourFloats larger(const FourFloats& x, const FourFloats& y) {
  return x > y ? x : y;
}

// Values counted into bins. Bin order is value order, so a bound for the distance inside a bin
// follows from the counts before it, and only bins with a high bound need their values.
class NormalBins {
 public:
  explicit NormalBins(std::span<const double> values) : bin_(values.size()) {
    for (std::size_t i = 0; i < values.size(); ++i) bin_[i] = bin_of(values[i]);
    for (const auto bin : bin_) ++before_[bin + std::size_t{1}];
    const float share = 1 / static_cast<float>(values.size());
    for (std::size_t bin = 1; bin <= kBins; ++bin) {
      before_[bin] += before_[bin - 1];
      share_before_[bin] = share * static_cast<float>(before_[bin]);
    }
    take_bounds();
  }

  // All values of bins in which the distance may be largest, ascending.
  std::vector<double> members(std::span<const double> values) const {
    std::vector<double> found;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (bound_[bin_[i]] >= reached_) found.push_back(values[i]);
    std::sort(found.begin(), found.end());
    return found;
  }

  std::int64_t before(std::size_t bin) const { return before_[bin]; }

 private:
  void take_bounds() {
    const auto& cdf = cdf_at_edges();
    FourFloats reached{};
    for (std::size_t bin = 0; bin < kBins; bin += 4) {
      const auto low = load<FourFloats>(cdf.data() + bin);
      const auto high = load<FourFloats>(cdf.data() + bin + 1);
      const auto before = load<FourFloats>(share_before_.data() + bin);
      const auto after = load<FourFloats>(share_before_.data() + bin + 1);
      store(bound_.data() + bin, larger(after - low, high - before));
      reached = larger(reached, larger(after - high, low - before));  // at the edges
    }
    reached_ = std::max({reached[0], reached[1], reached[2], reached[3]}) - kRounding;
  }

  std::vector<std::uint16_t> bin_;                // (values)
  std::array<std::int32_t, kBins + 1> before_{};  // values in the bins before
  std::array<float, kBins + 1> share_before_{};   // the same as a share
  std::array<float, kBins> bound_;                // of the distance inside the bin
  float reached_ = 0;                             // the distance is at least this
};

// z[i] becomes Phi(z[i]).
std::vector<double> normal_cdf_of(std::vector<double> z) {
  std::vector<double> tail;
  for (const double value : z) tail.push_back(std::fabs(value) * (1 / std::numbers::sqrt2));
  erfc_in_place(tail);
  for (std::size_t i = 0; i < z.size(); ++i) z[i] = z[i] < 0 ? 0.5 * tail[i] : 1 - 0.5 * tail[i];
  return z;
}

}  // namespace

double kolmogorov_distance_to_normal(std::span<const double> values) {
  const NormalBins bins(values);
  const auto members = bins.members(values);
  const auto cdf = normal_cdf_of(members);
  const auto n = static_cast<double>(values.size());
  double distance = 0;
  std::int64_t below = 0;  // values before the next member
  std::size_t bin = kBins;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (const std::size_t here = bin_of(members[i]); here != bin) {
      bin = here;
      below = bins.before(bin);
    }
    distance = std::max({distance, static_cast<double>(below + 1) / n - cdf[i],
                         cdf[i] - static_cast<double>(below) / n});
    ++below;
  }
  return distance;
}

}  // namespace qkscope
