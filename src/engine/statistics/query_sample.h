// Random sample of the queries of one document and head, which makes all-keys statistics cheaper.
// Header-only, because the CUDA module does not link this library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/core/numbers.h"

namespace qkscope {

// Queries are drawn in blocks of consecutive positions, because kernels process such blocks. A
// document of B blocks has round(fraction * B) sampled blocks, at least one. The inclusion
// probability of a block is proportional to the log-uniform mass of its positions, ln((end + 1) /
// (begin + 1)), and at most 1. The blocks are drawn by systematic sampling with unequal
// probabilities (Madow 1949), one uniform number per document and head.
constexpr std::int64_t kSampledQueries = 128;

struct QuerySample {
  double fraction = 1;  // of the queries; 1: all of them
  std::int64_t seed = 0;

  bool takes_all() const { return fraction >= 1; }
  // Returns one weight per block of the document: the inverse of the inclusion probability
  // (Horvitz-Thompson estimator) if the block is drawn, else 0. `document` identifies the text
  // independently of its batch.
  std::vector<float> block_weights(std::int64_t length, std::int64_t document, std::int64_t layer,
                                   std::int64_t head) const;
};

namespace sampling {

// One SplitMix64 step: mixes `value` into a running hash.
inline std::uint64_t mix_into_hash(std::uint64_t hash, std::int64_t value) {
  auto z = (hash ^ static_cast<std::uint64_t>(value)) + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Computes inclusion probabilities: scales the sizes so that the sum of min(1, size) is `total`.
inline std::vector<double> inclusion_probabilities(std::vector<double> sizes, double total) {
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

}  // namespace sampling

inline std::vector<float> QuerySample::block_weights(std::int64_t length, std::int64_t document,
                                                     std::int64_t layer, std::int64_t head) const {
  const auto blocks = (length + kSampledQueries - 1) / kSampledQueries;
  if (takes_all()) return std::vector<float>(as_index(blocks), 1.0f);
  std::vector<double> sizes(as_index(blocks));
  for (std::int64_t b = 0; b < blocks; ++b)
    sizes[as_index(b)] =
        std::log(static_cast<double>(std::min(length, (b + 1) * kSampledQueries) + 1) /
                 static_cast<double>(b * kSampledQueries + 1));
  const auto drawn = std::max<double>(1, std::round(fraction * static_cast<double>(blocks)));
  const auto probabilities = sampling::inclusion_probabilities(std::move(sizes), drawn);
  std::uint64_t hash = 0;
  for (const auto part : {seed, document, layer, head}) hash = sampling::mix_into_hash(hash, part);
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
