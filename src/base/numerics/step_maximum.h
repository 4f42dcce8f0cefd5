// The largest value a running sum reaches over sorted values, without sorting them all.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qkscope {

// Values dropped into equal bins over [low, high]; what lies outside counts to the first and last
// bin. Bin order is value order, so a bound for a bin follows from the counts before it, and only
// bins whose bound is high need their values sorted.
class ValueBins {
 public:
  ValueBins(double low, double high, std::size_t bins)
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

// Two samples on a line: the largest share of `upper` above a threshold minus the share of `lower`
// above it, over all thresholds. 0 when no threshold helps, 1 when one separates them.
double best_split(std::span<const double> upper, std::span<const double> lower);

}  // namespace qkscope
