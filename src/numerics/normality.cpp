#include "numerics/normality.h"

#include <algorithm>
#include <cmath>

#include "core/nan.h"
#include "numerics/kolmogorov.h"
#include "numerics/matrix.h"

namespace qkscope {
namespace {

struct CentralMoments {
  double m2 = 0;
  double m3 = 0;
  double m4 = 0;
};

// Eight running sums each, so that the additions do not wait for one another.
CentralMoments central_moments(std::span<const double> values, double mean) {
  constexpr std::size_t kLanes = 8;
  double s2[kLanes] = {};
  double s3[kLanes] = {};
  double s4[kLanes] = {};
  const auto add = [&](std::size_t lane, double value) {
    const double x = value - mean;
    const double xx = x * x;
    s2[lane] += xx;
    s3[lane] += xx * x;
    s4[lane] += xx * xx;
  };
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(lane, values[i + lane]);
  for (; i < values.size(); ++i) add(0, values[i]);
  CentralMoments moments;
  const auto n = static_cast<double>(values.size());
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    moments.m2 += s2[lane] / n;
    moments.m3 += s3[lane] / n;
    moments.m4 += s4[lane] / n;
  }
  return moments;
}

}  // namespace

Normality normality_of(std::span<double> values) {
  const auto n = static_cast<double>(values.size());
  const double mean = sum(values) / n;
  const auto [m2, m3, m4] = central_moments(values, mean);
  if (values.size() < 2 || !(m2 > 0)) return {kNan, kNan, kNan};
  Normality result{kNan, kNan, kNan};
  if (values.size() > 2) result.skew = std::sqrt(n * (n - 1)) / (n - 2) * m3 / (m2 * std::sqrt(m2));
  if (values.size() > 3)
    result.excess_kurtosis =
        ((n * n - 1) * m4 / (m2 * m2) - 3 * (n - 1) * (n - 1)) / ((n - 2) * (n - 3));
  const double scale = 1 / std::sqrt(m2 * n / (n - 1));
  for (double& value : values) value = (value - mean) * scale;
  result.ks_p =
      kolmogorov_p(static_cast<std::int64_t>(values.size()), kolmogorov_distance_to_normal(values));
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
