// Parts of text generation: next-token sampling from logits (greedy, or random with temperature,
// top-k and top-p), and incremental decoding of token ids into text.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "qkscope/experimental/generate.h"
#include "qkscope/tokenizer.h"

namespace qkscope {

// Candidate tokens with unnormalised probabilities.
struct TokenCandidates {
  std::vector<std::int32_t> tokens;
  std::vector<double> weights;
};

inline std::vector<std::int32_t> all_token_ids(std::span<const float> logits) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// Computes the softmax weight of each token, relative to that of the most likely token.
inline TokenCandidates softmax_candidates(std::vector<std::int32_t> tokens,
                                          std::span<const float> logits, double temperature) {
  const float highest = std::ranges::max(logits);
  std::vector<double> weights;
  for (const auto token : tokens) {
    const float logit = logits[as_index(token)];
    const auto below = static_cast<double>(logit) - static_cast<double>(highest);
    weights.push_back(logit == highest ? 1.0
                                       : std::exp(below / temperature));  // both may be infinite
  }
  return {std::move(tokens), std::move(weights)};
}

// Returns the `count` most likely tokens in descending order of probability.
inline TokenCandidates top_token_candidates(std::span<const float> logits, std::size_t count,
                                            double temperature) {
  auto tokens = all_token_ids(logits);
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[as_index(a)];
    const float y = logits[as_index(b)];
    return x != y ? x > y : a < b;
  };
  const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(tokens.begin(), end, tokens.end(), more_likely);
  tokens.erase(end, tokens.end());
  return softmax_candidates(std::move(tokens), logits, temperature);
}

inline double total_weight(std::span<const double> weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

// Truncates candidates, sorted by descending weight, to the shortest prefix whose weights sum to at
// least `enough`. Returns false if the sum of all weights is smaller.
inline bool truncate_to_nucleus(TokenCandidates& candidates, double enough) {
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

inline TokenCandidates find_token_candidates(std::span<const float> logits,
                                             const GenerateOptions& options) {
  if (options.top_k > 0) {
    const auto count = std::min(logits.size(), as_index(options.top_k));
    auto found = top_token_candidates(logits, count, options.temperature);
    if (options.top_p < 1.0)
      truncate_to_nucleus(found, options.top_p * total_weight(found.weights));
    return found;
  }
  auto all = softmax_candidates(all_token_ids(logits), logits, options.temperature);
  if (options.top_p >= 1.0) return all;
  // The nucleus (the top-p tokens) is usually small, and sorting the whole vocabulary is slow.
  const auto enough = options.top_p * total_weight(all.weights);
  for (std::size_t count = 128;; count *= 8) {
    const auto some = std::min(count, logits.size());
    auto found = top_token_candidates(logits, some, options.temperature);
    if (truncate_to_nucleus(found, enough) || some == logits.size()) return found;
  }
}

// Samples the tokens of one sequence, reproducibly for a given seed and sequence number.
class TokenSampler {
 public:
  TokenSampler(const GenerateOptions& options, std::int64_t sequence) : options_(options) {
    std::seed_seq words{static_cast<std::uint32_t>(options.seed),
                        static_cast<std::uint32_t>(options.seed >> 32),
                        static_cast<std::uint32_t>(sequence)};
    generator_.seed(words);
  }

  // Returns a token id; ties go to the lower id. Throws an Error if a logit is NaN.
  std::int32_t sample_token(std::span<const float> logits) {
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (std::isnan(logits[i]))
        throw_failure("generate: the logit of token {} is not a number", i);
    if (options_.temperature == 0.0)
      return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
    const auto [tokens, weights] = find_token_candidates(logits, options_);
    const double uniform = static_cast<double>(generator_() >> 11) * 0x1p-53;  // in [0, 1)
    auto left = uniform * total_weight(weights);
    std::size_t chosen = 0;
    while (chosen + 1 < weights.size() && left >= weights[chosen]) left -= weights[chosen++];
    return tokens[chosen];
  }

 private:
  GenerateOptions options_;
  std::mt19937_64 generator_;
};

// Incremental decoder that stops at stop strings.
class IncrementalDecoder {
 public:
  // Decodes the tokens that follow a prompt. Stop strings must not be empty.
  IncrementalDecoder(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                     std::span<const std::string> stop_texts)
      : tokenizer_(tokenizer), stop_texts_(stop_texts) {
    const auto context = prompt.last(std::min(kContext, prompt.size()));
    ids_.assign(context.begin(), context.end());
    read_ = ids_.size();
  }

  // Adds a token and returns new text; holds back incomplete characters and possible stop strings.
  std::string add_token(std::int32_t id) {
    ids_.push_back(id);
    held_ += decode_pending_tokens(false);
    return take_ready_text(false);
  }
  // Returns true once a stop string has been found; all text before it has been returned.
  bool stopped() const { return stopped_; }
  // Returns the text held back so far; call after the last token.
  std::string flush() {
    if (stopped_) return {};
    held_ += decode_pending_tokens(true);
    return take_ready_text(true);
  }

 private:
  // Number of preceding tokens to decode along with a token, because its text may depend on them.
  static constexpr std::size_t kContext = 6;
  static constexpr std::string_view kReplacement = "\uFFFD";  // stands for invalid UTF-8

  // Length of the longest suffix of the text that is a proper prefix of a stop string.
  static std::size_t stop_prefix_length(const std::string& text,
                                        std::span<const std::string> stop_texts) {
    std::size_t most = 0;
    for (const auto& stop : stop_texts)
      for (auto size = std::min(text.size(), stop.size() - 1); size > most; --size)
        if (text.compare(text.size() - size, size, stop, 0, size) == 0) most = size;
    return most;
  }

  // Decodes the ids that have not been decoded yet, in the context of the ids before them.
  std::string decode_pending_tokens(bool last) {
    const std::span ids(ids_);
    const auto before = tokenizer_.decode(ids.first(read_), true);
    const auto whole = tokenizer_.decode(ids, true);
    if (whole.size() <= before.size() || (!last && whole.ends_with(kReplacement))) return {};
    const auto first = read_ > kContext ? read_ - kContext : 0;
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(first));
    read_ = ids_.size();
    return whole.substr(before.size());
  }

  std::string take_ready_text(bool last) {
    auto end = std::string::npos;
    for (const auto& stop : stop_texts_) end = std::min(end, held_.find(stop));
    stopped_ = end != std::string::npos;
    if (!stopped_) end = held_.size() - (last ? 0 : stop_prefix_length(held_, stop_texts_));
    auto given = held_.substr(0, end);
    held_.erase(0, stopped_ ? held_.size() : end);
    return given;
  }

  const Tokenizer& tokenizer_;
  std::span<const std::string> stop_texts_;
  std::vector<std::int32_t> ids_;  // a few tokens of context, then tokens not decoded yet
  std::size_t read_ = 0;           // number of decoded ids_
  std::string held_;               // decoded text not returned yet
  bool stopped_ = false;
};

}  // namespace qkscope
