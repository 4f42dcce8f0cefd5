// Next-token sampling from logits: greedy, or random with temperature, top-k and top-p.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"

namespace qkscope {

// Parameters as in GenerateOptions.
struct SamplingOptions {
  double temperature = 0.0;
  std::int64_t top_k = 0;
  double top_p = 1.0;
};

// Candidate tokens with unnormalised probabilities.
struct Candidates {
  std::vector<std::int32_t> tokens;
  std::vector<double> weights;
};

inline double softmax_weight(float logit, float highest, double temperature) {
  if (logit == highest) return 1.0;  // also if both are infinite
  return std::exp((static_cast<double>(logit) - static_cast<double>(highest)) / temperature);
}

// Returns the `count` most likely tokens in descending order of probability.
inline Candidates top_tokens(std::span<const float> logits, std::size_t count, double temperature) {
  Candidates found;
  found.tokens.resize(logits.size());
  std::iota(found.tokens.begin(), found.tokens.end(), 0);
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[as_index(a)];
    const float y = logits[as_index(b)];
    return x != y ? x > y : a < b;
  };
  const auto end = found.tokens.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(found.tokens.begin(), end, found.tokens.end(), more_likely);
  found.tokens.erase(end, found.tokens.end());
  const float highest = logits[as_index(found.tokens.front())];
  for (const auto token : found.tokens)
    found.weights.push_back(softmax_weight(logits[as_index(token)], highest, temperature));
  return found;
}

inline Candidates all_tokens(std::span<const float> logits, double temperature) {
  Candidates found;
  found.tokens.resize(logits.size());
  std::iota(found.tokens.begin(), found.tokens.end(), 0);
  const float highest = std::ranges::max(logits);
  for (const float logit : logits)
    found.weights.push_back(softmax_weight(logit, highest, temperature));
  return found;
}

inline double sum_weights(std::span<const double> weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

// Truncates descending candidates to the shortest prefix whose weights sum to `enough`. Returns
// false if all weights together sum to less.
inline bool keep_nucleus(Candidates& candidates, double enough) {
  double sum = 0.0;
  for (std::size_t i = 0; i < candidates.weights.size(); ++i) {
    sum += candidates.weights[i];
    if (sum < enough) continue;
    candidates.tokens.resize(i + 1);
    candidates.weights.resize(i + 1);
    return true;
  }
  return false;
}

inline Candidates find_candidates(std::span<const float> logits, const SamplingOptions& options) {
  if (options.top_k > 0) {
    const auto count = std::min(logits.size(), as_index(options.top_k));
    auto found = top_tokens(logits, count, options.temperature);
    if (options.top_p < 1.0) keep_nucleus(found, options.top_p * sum_weights(found.weights));
    return found;
  }
  auto all = all_tokens(logits, options.temperature);
  if (options.top_p >= 1.0) return all;
  // The nucleus is usually small; sorting the whole vocabulary would be slow.
  const auto enough = options.top_p * sum_weights(all.weights);
  for (std::size_t count = 128; count < logits.size(); count *= 8) {
    auto found = top_tokens(logits, count, options.temperature);
    if (keep_nucleus(found, enough)) return found;
  }
  auto found = top_tokens(logits, logits.size(), options.temperature);
  keep_nucleus(found, enough);
  return found;
}

// Samples the tokens of one sequence, reproducibly for a given seed and sequence number.
class Sampler {
 public:
  Sampler(const SamplingOptions& options, std::uint64_t seed, std::int64_t sequence)
      : options_(options) {
    std::seed_seq words{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                        static_cast<std::uint32_t>(sequence)};
    generator_.seed(words);
  }

  // Returns a token id; ties go to the lower id. Throws an Error if a logit is NaN.
  std::int32_t choose(std::span<const float> logits) {
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (std::isnan(logits[i])) failure("generate: the logit of token {} is not a number", i);
    if (options_.temperature == 0.0)
      return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
    const auto [tokens, weights] = find_candidates(logits, options_);
    const double uniform = static_cast<double>(generator_() >> 11) * 0x1p-53;  // in [0, 1)
    auto left = uniform * sum_weights(weights);
    std::size_t chosen = 0;
    while (chosen + 1 < weights.size() && left >= weights[chosen]) left -= weights[chosen++];
    return tokens[chosen];
  }

 private:
  SamplingOptions options_;
  std::mt19937_64 generator_;
};

}  // namespace qkscope
