// Samples token positions of an example. The result equals that of qk-sniffer bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include "capture/format/buckets.h"

namespace qkscope {

// Seed for sampling one example, layer and kind ('q' or 'k').
std::uint64_t sampling_seed(std::int64_t example_key, std::int64_t layer, char kind);

class PositionSampler {
 public:
  explicit PositionSampler(const SamplerOptions& options);

  std::int32_t bucket(std::int64_t position) const { return buckets_.of(position); }
  float probability(std::int32_t bucket) const;  // of keeping a position in this bucket

  // Returns the sampled positions of [0, length), ascending. If more than max_rows are sampled,
  // keeps those with the smallest hash of seed and position, which is a deterministic choice.
  std::vector<std::int32_t> sample(std::uint64_t seed, std::int64_t length) const;

 private:
  SamplerOptions options_;
  Buckets buckets_;
};

}  // namespace qkscope
