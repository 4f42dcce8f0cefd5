// Position buckets: which bucket the sampler of a capture puts a position in, and back.
#pragma once

#include <cstdint>

#include "qkscope/captures.h"

namespace qkscope {

// bucket_of() and positions_of_bucket() for many positions.
class Buckets {
 public:
  explicit Buckets(const SamplerOptions& sampler);

  std::int32_t of(std::int64_t position) const;
  PositionRange positions(std::int32_t bucket) const;

 private:
  SamplerType type_;
  std::int64_t size_;   // min_bucket_size
  int smallest_power_;  // log_uniform: no bucket is below this one
};

}  // namespace qkscope
