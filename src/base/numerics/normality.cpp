#include "base/numerics/normality.h"

#include <algorithm>
#include <cmath>

#include "base/core/nan.h"
#include "base/numerics/kolmogorov.h"
#include "base/numerics/vectors.h"

namespace qkscope {

Normality normality_of(std::span<const double> values, PowerSums sums) {
  const auto n = static_cast<double>(values.size());
  // Sums around 0 say as much as those around the mean where it is small beside the spread.
  double centre = 0;
  if (sums.first * sums.first > 1e-4 * n * sums.second) {
    centre = sums.first / n;
    sums = powers_around(values, centre);
  }
  const double off = sums.first / n;  // of the mean from the centre
  const double m2 = sums.second / n - off * off;
  const double m3 = sums.third / n - off * (3 * sums.second / n - 2 * off * off);
  const double m4 =
      sums.fourth / n - off * (4 * sums.third / n - off * (6 * sums.second / n - 3 * off * off));
  if (values.size() < 2 || !(m2 > 0)) return {kNan, kNan, kNan};
  Normality result{kNan, kNan, kNan};
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
