// Youden's J without sorting both samples: counts per bin bound J inside every bin, and only the
// bins whose bound exceeds the best J at a bin edge are sorted and scanned.
#include "base/numerics/youden_j.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace qkscope {
namespace {

constexpr std::size_t kHistogramBins = 1024;

// Histogram with equal bins over [low, high]; values outside this range are counted in the first or
// last bin.
class Histogram {
 public:
  Histogram(double low, double high, std::size_t bins)
      : low_(low),
        scale_(high > low ? static_cast<double>(bins) / (high - low) : 0),
        last_(static_cast<double>(bins - 1)),
        count_(bins) {}

  void add(std::span<const double> values) {
    for (const double value : values) ++count_[bin_of(value)];
  }
  std::size_t size() const { return count_.size(); }
  std::int64_t count(std::size_t bin) const { return count_[bin]; }
  std::size_t bin_of(double value) const {
    const double scaled = (value - low_) * scale_;
    return static_cast<std::size_t>(std::clamp(scaled, 0.0, last_));
  }

 private:
  double low_;
  double scale_;  // bins per unit
  double last_;
  std::vector<std::int32_t> count_;
};

// Returns the sorted values of the marked bins.
std::vector<double> sorted_members(std::span<const double> values, const Histogram& bins,
                                   const std::vector<char>& marked) {
  std::vector<double> members;
  for (const double value : values)
    if (marked[bins.bin_of(value)] != 0) members.push_back(value);
  std::sort(members.begin(), members.end());
  return members;
}

}  // namespace

double youden_j(std::span<const double> upper, std::span<const double> lower) {
  const auto [upper_low, upper_high] = std::minmax_element(upper.begin(), upper.end());
  const auto [lower_low, lower_high] = std::minmax_element(lower.begin(), lower.end());
  Histogram bins(std::min(*upper_low, *lower_low), std::max(*upper_high, *lower_high),
                 kHistogramBins);
  bins.add(upper);
  bins.add(lower);
  std::vector<std::int64_t> lower_count(bins.size());
  for (const double value : lower) ++lower_count[bins.bin_of(value)];
  const auto nu = static_cast<double>(upper.size());
  const auto nl = static_cast<double>(lower.size());
  // J(x) = fraction of lower <= x - fraction of upper <= x
  double best = 0;
  double j = 0;
  std::vector<double> bound(bins.size());
  std::vector<double> j_before(bins.size());
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    const auto low = static_cast<double>(lower_count[bin]);
    j_before[bin] = j;
    bound[bin] = j + low / nl;
    j += low / nl - (static_cast<double>(bins.count(bin)) - low) / nu;
    best = std::max(best, j);
  }
  std::vector<char> marked(bins.size());
  for (std::size_t bin = 0; bin < bins.size(); ++bin) marked[bin] = bound[bin] > best ? 1 : 0;
  const auto from_lower = sorted_members(lower, bins, marked);
  const auto from_upper = sorted_members(upper, bins, marked);
  std::size_t passed = 0;        // members of from_upper <= x
  std::size_t lower_before = 0;  // members in earlier bins
  std::size_t upper_before = 0;
  std::size_t bin = bins.size();
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
    best = std::max(best, j_before[bin] + static_cast<double>(i + 1 - lower_before) / nl -
                              static_cast<double>(passed - upper_before) / nu);
  }
  return best;
}

}  // namespace qkscope
