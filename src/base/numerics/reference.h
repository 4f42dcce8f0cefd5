// Reference implementations of the optimised kernels, used by tests. Read these before the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "base/core/numbers.h"
#include "base/numerics/normal.h"

namespace qkscope {

// Reference for multiply_few_columns(): out (rows, columns) = left (rows, depth) * right (depth,
// columns); `stride`: row stride of `right`. Targets with fused multiply-adds agree bit for bit.
inline void multiply_few_columns_reference(const float* left, std::int64_t rows, std::int64_t depth,
                                           const float* right, std::int64_t stride,
                                           std::int64_t columns, float* out) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < depth; ++k)
        sum = std::fma(left[i * depth + k], right[k * stride + j], sum);
      out[i * columns + j] = sum;
    }
}

// Reference for Nufft: S(omega) = sum over rows of value * exp(-i * omega * (offset - origin)).
inline std::complex<double> nufft_reference(std::span<const std::int32_t> offsets,
                                            std::span<const std::complex<double>> values,
                                            double omega, double origin) {
  std::complex<double> sum;
  for (std::size_t i = 0; i < values.size(); ++i)
    sum += values[i] * std::polar(1.0, -omega * (offsets[i] - origin));
  return sum;
}

// Reference implementation of kolmogorov_distance_to_normal(): the largest distance between the
// empirical distribution function and Phi((x - centre) * scale), just before and at every value.
inline double kolmogorov_distance_to_normal_reference(std::vector<double> values, double centre,
                                                      double scale) {
  std::ranges::sort(values);
  const auto n = to_double(values.size());
  double distance = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double cdf = normal_cdf((values[i] - centre) * scale);
    const auto below = to_double(i);
    distance = std::max({distance, (below + 1) / n - cdf, cdf - below / n});
  }
  return distance;
}

}  // namespace qkscope
