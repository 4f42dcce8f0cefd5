#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "engine/api/generation.h"

namespace qkscope {
namespace {

const std::vector<float> kLogits = {0.0f, 2.0f, 1.0f, 2.0f, -1.0f};

std::map<std::int32_t, int> counts(GenerateOptions options, int draws) {
  options.seed = 7;
  TokenSampler sampler(options, 0);
  std::map<std::int32_t, int> found;
  for (int i = 0; i < draws; ++i) ++found[sampler.sample_token(kLogits)];
  return found;
}

TEST(TokenSampler, ZeroTemperatureTakesTheFirstMaximum) {
  TokenSampler sampler({}, 0);
  EXPECT_EQ(sampler.sample_token(kLogits), 1);
}

// 4,000 draws: the standard error of a frequency is at most 0.008.
TEST(TokenSampler, DrawsFollowTheSoftmaxProbabilities) {
  const auto found = counts({.temperature = 2.0}, 4000);
  double sum = 0.0;
  for (const float logit : kLogits) sum += std::exp(logit / 2.0);
  for (std::size_t i = 0; i < kLogits.size(); ++i)
    EXPECT_NEAR(found.at(static_cast<std::int32_t>(i)) / 4000.0, std::exp(kLogits[i] / 2.0) / sum,
                0.04);
}

TEST(TokenSampler, TopKDrawsOnlyFromTheMostLikelyTokens) {
  const auto found = counts({.temperature = 5.0, .top_k = 3}, 500);
  EXPECT_EQ(found.size(), 3u);
  EXPECT_TRUE(found.contains(1) && found.contains(2) && found.contains(3));
  EXPECT_EQ(counts({.temperature = 5.0, .top_k = 100}, 500).size(), 5u);
}

// The two most likely tokens have probability 0.386 each.
TEST(TokenSampler, TopPDrawsFromTheSmallestNucleus) {
  EXPECT_EQ(counts({.temperature = 1.0, .top_p = 0.3}, 500).size(), 1u);
  EXPECT_EQ(counts({.temperature = 1.0, .top_p = 0.5}, 500).size(), 2u);
  EXPECT_EQ(counts({.temperature = 1.0, .top_p = 0.9}, 500).size(), 3u);
  // With top_k = 3 the first two tokens have probability 0.84.
  EXPECT_EQ(counts({.temperature = 1.0, .top_k = 3, .top_p = 0.8}, 500).size(), 2u);
}

TEST(TokenSampler, LargeNucleusIsComplete) {
  const std::vector<float> even(5000, 0.5f);
  TokenSampler sampler({.temperature = 1.0, .top_p = 0.99, .seed = 1}, 0);
  std::int32_t highest = 0;
  for (int i = 0; i < 500; ++i) highest = std::max(highest, sampler.sample_token(even));
  EXPECT_GT(highest, 4000);
  EXPECT_LT(highest, 4950);
}

TEST(TokenSampler, SeedsAndSequencesHaveIndependentStreams) {
  const auto draw = [](std::uint64_t seed, std::int64_t sequence) {
    TokenSampler sampler({.temperature = 3.0, .seed = seed}, sequence);
    std::vector<std::int32_t> tokens(40);
    for (auto& token : tokens) token = sampler.sample_token(kLogits);
    return tokens;
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(2, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
  EXPECT_NE(draw(1, 0), draw((std::uint64_t{1} << 32) + 1, 0));
}

TEST(TokenSampler, MinusInfinityIsNeverDrawnAndNanThrows) {
  const float infinity = std::numeric_limits<float>::infinity();
  TokenSampler sampler({.temperature = 1.0}, 0);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(sampler.sample_token(std::vector<float>{-infinity, 1.0f, -infinity}), 1);
  EXPECT_THROW(sampler.sample_token(std::vector<float>{0.0f, std::nanf("")}), Error);
}

}  // namespace
}  // namespace qkscope
