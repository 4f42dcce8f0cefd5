// Which token positions of an example are kept: the same as the Python prototype keeps, to the bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace qkscope {

enum class SamplerType { log_uniform, uniform, all };

std::string_view sampler_type_name(SamplerType type);

struct SamplerOptions {
  SamplerType type = SamplerType::log_uniform;
  double base_rate = 1.0;
  std::int64_t min_bucket_size = 128;
  std::optional<std::int64_t> max_rows;  // of one example, layer and kind
};

// The seed of the mask of one example, layer and kind ('q' or 'k').
std::uint64_t sampling_seed(std::int64_t example_key, std::int64_t layer, char kind);

class PositionSampler {
 public:
  explicit PositionSampler(const SamplerOptions& options);

  std::int32_t bucket(std::int64_t position) const;
  float probability(std::int32_t bucket) const;  // that a position of this bucket is kept

  // The kept positions of [0, length), ascending. With max_rows, of more kept ones those with the
  // smallest hash of seed and position stay: a choice that depends on nothing else.
  std::vector<std::int32_t> sample(std::uint64_t seed, std::int64_t length) const;

 private:
  SamplerOptions options_;
  int smallest_power_;  // log_uniform: no bucket is below this one
};

}  // namespace qkscope
