// Which token positions of an example are kept: the same as the Python prototype keeps, to the bit.
#pragma once

#include <cstdint>
#include <vector>

#include "capture/format/buckets.h"

namespace qkscope {

// The seed of the mask of one example, layer and kind ('q' or 'k').
std::uint64_t sampling_seed(std::int64_t example_key, std::int64_t layer, char kind);

class PositionSampler {
 public:
  explicit PositionSampler(const SamplerOptions& options);

  std::int32_t bucket(std::int64_t position) const { return buckets_.of(position); }
  float probability(std::int32_t bucket) const;  // that a position of this bucket is kept

  // The kept positions of [0, length), ascending. With max_rows, of more kept ones those with the
  // smallest hash of seed and position stay: a choice that depends on nothing else.
  std::vector<std::int32_t> sample(std::uint64_t seed, std::int64_t length) const;

 private:
  SamplerOptions options_;
  Buckets buckets_;
};

}  // namespace qkscope
