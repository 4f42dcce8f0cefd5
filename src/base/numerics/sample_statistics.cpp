#include "base/numerics/sample_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/core/nan.h"

namespace qkscope {

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? kNan : sum / static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  if (values.size() < 2) return kNan;
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double quantile_of(std::vector<double> values, double fraction) {
  if (values.empty()) return kNan;
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], place - static_cast<double>(below));
}

CentredProducts centred_products(std::span<const double> x, std::span<const double> y) {
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  CentredProducts sums;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sums.xx += (x[i] - mean_x) * (x[i] - mean_x);
    sums.xy += (x[i] - mean_x) * (y[i] - mean_y);
    sums.yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return sums;
}

double correlation_of(const std::vector<double>& x, const std::vector<double>& y) {
  const auto [xx, xy, yy] = centred_products(x, y);
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : kNan;
}

}  // namespace qkscope
