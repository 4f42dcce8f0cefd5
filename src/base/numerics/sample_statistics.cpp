#include "base/numerics/sample_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/core/numbers.h"
#include "base/numerics/kolmogorov.h"

namespace qkscope {

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? kNan : sum / static_cast<double>(values.size());
}

double standard_deviation_of(const std::vector<double>& values) {
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

NormalityStatistics measure_normality(std::span<const double> values, PowerSums sums) {
  const auto n = static_cast<double>(values.size());
  // Power sums around 0 are accurate enough if the mean is small relative to the deviation.
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
  result.ks_p = kolmogorov_p(static_cast<std::int64_t>(values.size()),
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

}  // namespace qkscope
