// Next-token sampling from logits: greedy, or random with temperature, top-k and top-p.
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace qkscope {

// Parameters as in GenerateOptions.
struct SamplingOptions {
  double temperature = 0.0;
  std::int64_t top_k = 0;
  double top_p = 1.0;
};

// Samples the tokens of one sequence, reproducibly for a given seed and sequence number.
class Sampler {
 public:
  Sampler(const SamplingOptions& options, std::uint64_t seed, std::int64_t sequence);

  // Returns a token id; ties go to the lower id. Throws an Error if a logit is NaN.
  std::int32_t choose(std::span<const float> logits);

 private:
  double uniform();  // uniform in [0, 1)

  SamplingOptions options_;
  std::mt19937_64 generator_;
};

}  // namespace qkscope
