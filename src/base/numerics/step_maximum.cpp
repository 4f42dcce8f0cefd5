#include "base/numerics/step_maximum.h"

#include <utility>

namespace qkscope {
namespace {

constexpr std::size_t kSplitBins = 1024;

// The values of all marked bins, ascending: bin after bin.
std::vector<double> sorted_members(std::span<const double> values, const ValueBins& bins,
                                   const std::vector<char>& marked) {
  std::vector<double> members;
  for (const double value : values)
    if (marked[bins.bin_of(value)] != 0) members.push_back(value);
  std::sort(members.begin(), members.end());
  return members;
}

}  // namespace

double best_split(std::span<const double> upper, std::span<const double> lower) {
  const auto [upper_low, upper_high] = std::minmax_element(upper.begin(), upper.end());
  const auto [lower_low, lower_high] = std::minmax_element(lower.begin(), lower.end());
  ValueBins bins(std::min(*upper_low, *lower_low), std::max(*upper_high, *lower_high), kSplitBins);
  bins.add(upper);
  bins.add(lower);
  std::vector<std::int64_t> lower_count(bins.size());
  for (const double value : lower) ++lower_count[bins.bin_of(value)];
  const auto nu = static_cast<double>(upper.size());
  const auto nl = static_cast<double>(lower.size());
  // gain(x) = share of lower at or below x - share of upper at or below x
  double best = 0;
  double gain = 0;
  std::vector<double> bound(bins.size());
  std::vector<double> gain_before(bins.size());
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    const auto low = static_cast<double>(lower_count[bin]);
    gain_before[bin] = gain;
    bound[bin] = gain + low / nl;
    gain += low / nl - (static_cast<double>(bins.count(bin)) - low) / nu;
    best = std::max(best, gain);
  }
  std::vector<char> marked(bins.size());
  for (std::size_t bin = 0; bin < bins.size(); ++bin) marked[bin] = bound[bin] > best ? 1 : 0;
  const auto from_lower = sorted_members(lower, bins, marked);
  const auto from_upper = sorted_members(upper, bins, marked);
  std::size_t passed = 0;        // of from_upper
  std::size_t lower_before = 0;  // members before the current bin
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
    best = std::max(best, gain_before[bin] + static_cast<double>(i + 1 - lower_before) / nl -
                              static_cast<double>(passed - upper_before) / nu);
  }
  return best;
}

}  // namespace qkscope
