#include "base/numerics/plasticity_series.h"

#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace qkscope {
namespace {

struct alignas(64) Node {  // one cache line
  double terms[kSeriesTerms];
};

// Taylor coefficients at z of 4 Phi(z) Phi(-z) = 1 - E^2 with E = erf(z / sqrt(2)). Derivatives of
// E are Hermite polynomials times the normal density.
void series_at(double z, double* terms) {
  const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
  const double rest = std::erfc(z / std::numbers::sqrt2);
  double e[kSeriesTerms] = {1 - rest};  // Taylor coefficients of E
  double hermite = 1;
  double before = 0;
  double scale = 2 * density;  // 2 density (-1)^k / (k + 1)!
  for (int k = 0; k + 1 < kSeriesTerms; ++k) {
    e[k + 1] = scale * hermite;
    const double next = z * hermite - k * before;
    before = hermite;
    hermite = next;
    scale /= -(k + 2);
  }
  terms[0] = rest * (2 - rest);  // avoids the cancellation in 1 - E^2
  for (int k = 1; k < kSeriesTerms; ++k) {
    terms[k] = 0;
    for (int i = 0; i <= k; ++i) terms[k] -= e[i] * e[k - i];
  }
}

}  // namespace

const double* plasticity_series() {
  static const std::vector<Node> nodes = [] {
    std::vector<Node> list(kLastNode * kNodesPerUnit + 1);
    for (std::size_t i = 0; i < list.size(); ++i)
      series_at(static_cast<double>(i) / kNodesPerUnit, list[i].terms);
    return list;
  }();
  return nodes.front().terms;
}

}  // namespace qkscope
