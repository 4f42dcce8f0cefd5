// Converts between token positions and a sampler's position buckets (ranges of positions).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "qkscope/captures.h"

namespace qkscope {

// Inverse of sampler_type_name(). Returns nullopt for any other name.
std::optional<SamplerType> sampler_type_from_name(std::string_view name);

// Precomputed form of bucket_of() and positions_of_bucket() (qkscope/captures.h).
class PositionBuckets {
 public:
  explicit PositionBuckets(const SamplerOptions& sampler);

  std::int32_t bucket_of(std::int64_t position) const;
  PositionRange positions_of_bucket(std::int32_t bucket) const;

 private:
  SamplerType type_;
  std::int64_t size_;   // min_bucket_size of the sampler
  int smallest_power_;  // lowest bucket of a log_uniform sampler
};

}  // namespace qkscope
