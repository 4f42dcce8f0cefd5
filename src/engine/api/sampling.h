// A token from logits: the most likely one, or one by chance.
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace qkscope {

struct SamplingOptions {
  double temperature = 0.0;
  std::int64_t top_k = 0;
  double top_p = 1.0;
};

// The tokens of one text. The same seed and number give the same choices on every machine.
class Sampler {
 public:
  Sampler(const SamplingOptions& options, std::uint64_t seed, std::int64_t sequence);

  // NaN among the logits is an error. Of tokens that are equally likely the first one.
  std::int32_t choose(std::span<const float> logits);

 private:
  double uniform();  // in [0, 1)

  SamplingOptions options_;
  std::mt19937_64 generator_;
};

}  // namespace qkscope
