#include "engine/statistics/query_sample.h"

#include <algorithm>
#include <cmath>

#include "base/core/numbers.h"

namespace qkscope {
namespace {

// SplitMix64 of a running hash and one more number.
std::uint64_t mix(std::uint64_t hash, std::int64_t value) {
  auto z = (hash ^ static_cast<std::uint64_t>(value)) + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Scales the sizes so that min(1, size) adds up to `total`.
std::vector<double> inclusion_probabilities(std::vector<double> sizes, double total) {
  std::vector<bool> is_certain(sizes.size());
  for (;;) {
    double rest = 0, certain = 0;
    for (std::size_t b = 0; b < sizes.size(); ++b) (is_certain[b] ? certain : rest) += sizes[b];
    bool found = false;
    for (std::size_t b = 0; b < sizes.size(); ++b) {
      if (is_certain[b]) continue;
      sizes[b] *= (total - certain) / rest;
      if (sizes[b] < 1) continue;
      sizes[b] = 1;
      is_certain[b] = found = true;
    }
    if (!found) return sizes;
  }
}

}  // namespace

std::vector<float> QuerySample::block_weights(std::int64_t length, std::int64_t document,
                                              std::int64_t layer, std::int64_t head) const {
  const auto blocks = (length + kSampledQueries - 1) / kSampledQueries;
  if (takes_all()) return std::vector<float>(as_index(blocks), 1.0f);
  std::vector<double> sizes(as_index(blocks));
  for (std::int64_t b = 0; b < blocks; ++b)
    sizes[as_index(b)] =
        std::log(static_cast<double>(std::min(length, (b + 1) * kSampledQueries) + 1) /
                 static_cast<double>(b * kSampledQueries + 1));
  const auto drawn = std::max<double>(1, std::round(fraction * static_cast<double>(blocks)));
  const auto probabilities = inclusion_probabilities(std::move(sizes), drawn);
  const auto hash = mix(mix(mix(mix(0, seed), document), layer), head);
  double next = static_cast<double>(hash >> 11) * 0x1p-53;  // uniform in [0, 1)
  std::vector<float> weights(as_index(blocks));
  double cumulative = 0;
  for (std::size_t b = 0; b < weights.size(); ++b) {
    cumulative =
        b + 1 == weights.size() ? drawn : cumulative + probabilities[b];  // exact at the end
    if (cumulative <= next) continue;
    weights[b] = static_cast<float>(1 / probabilities[b]);
    next += 1;
  }
  return weights;
}

}  // namespace qkscope
