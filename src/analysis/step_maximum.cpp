#include "analysis/step_maximum.h"

#include <utility>

#include "analysis/kolmogorov.h"
#include "analysis/normal.h"

namespace qkscope {
namespace {

// Standardised values rarely leave this range; those that do share the outermost bins.
constexpr double kNormalRange = 5;
constexpr std::size_t kNormalBins = 4096;
constexpr std::size_t kSplitBins = 1024;
constexpr double kEdgeRounding = 1e-9;  // a value may fall into its neighbour's bin by rounding

// Phi at the edges of the bins; the outermost reach to infinity.
std::vector<double> cdf_at_edges() {
  std::vector<double> cdf(kNormalBins + 1);
  for (std::size_t i = 0; i <= kNormalBins; ++i)
    cdf[i] = normal_cdf(-kNormalRange + 2 * kNormalRange * static_cast<double>(i) / kNormalBins);
  cdf.front() = 0;
  cdf.back() = 1;
  return cdf;
}

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

double kolmogorov_distance_to_normal(std::span<const double> values) {
  static const std::vector<double> cdf_at = cdf_at_edges();
  ValueBins bins(-kNormalRange, kNormalRange, kNormalBins);
  bins.add(values);
  const auto n = static_cast<double>(values.size());
  // Inside a bin the distance is at most its bound; at the edges it is reached.
  std::vector<double> bound(bins.size());
  double best = 0;
  double before = 0;
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    if (bins.count(bin) == 0) continue;
    const double after = before + static_cast<double>(bins.count(bin)) / n;
    bound[bin] = std::max(after - cdf_at[bin], cdf_at[bin + 1] - before) + kEdgeRounding;
    best = std::max({best, after - cdf_at[bin + 1], cdf_at[bin] - before});
    before = after;
  }
  best = std::max(0.0, best - kEdgeRounding);
  std::vector<char> marked(bins.size());
  for (std::size_t bin = 0; bin < bins.size(); ++bin) marked[bin] = bound[bin] > best ? 1 : 0;
  const auto members = sorted_members(values, bins, marked);
  double exact = 0;
  std::size_t bin = 0;
  double below = 0;  // values before the next member
  for (const double value : members) {
    for (const auto here = bins.bin_of(value); bin < here; ++bin)
      if (marked[bin] == 0) below += static_cast<double>(bins.count(bin));
    const double cdf = normal_cdf(value);
    exact = std::max({exact, (below + 1) / n - cdf, cdf - below / n});
    below += 1;
  }
  return exact;
}

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
