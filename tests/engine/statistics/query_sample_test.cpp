#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "engine/statistics/attention_sums.h"

namespace qkscope {
namespace {

std::int64_t drawn(const std::vector<float>& weights) {
  return std::ranges::count_if(weights, [](float w) { return w > 0; });
}

TEST(QuerySample, FractionOneTakesEveryBlockWithWeightOne) {
  const auto weights = QuerySample{}.horvitz_thompson_weights(1000, 1, 2, 3);
  EXPECT_EQ(weights, std::vector<float>(8, 1.0f));
}

TEST(QuerySample, EveryHeadDrawsTheSameNumberOfBlocks) {
  const QuerySample sample{1.0 / 16, 0};
  for (std::int64_t head = 0; head < 100; ++head) {
    EXPECT_EQ(drawn(sample.horvitz_thompson_weights(131072, 9, 0, head)), 64);
    EXPECT_EQ(drawn(sample.horvitz_thompson_weights(300, 9, 0, head)), 1);
    EXPECT_EQ(drawn(sample.horvitz_thompson_weights(1, 9, 0, head)), 1);
  }
}

TEST(QuerySample, DependsOnSeedDocumentLayerAndHead) {
  const QuerySample sample{1.0 / 16, 0};
  const auto first = sample.horvitz_thompson_weights(131072, 1, 1, 1);
  EXPECT_EQ(sample.horvitz_thompson_weights(131072, 1, 1, 1), first);
  EXPECT_NE(sample.horvitz_thompson_weights(131072, 2, 1, 1), first);
  EXPECT_NE(sample.horvitz_thompson_weights(131072, 1, 2, 1), first);
  EXPECT_NE(sample.horvitz_thompson_weights(131072, 1, 1, 2), first);
  EXPECT_NE((QuerySample{1.0 / 16, 1}.horvitz_thompson_weights(131072, 1, 1, 1)), first);
}

// The mean weight of a block over many draws is 1: sums with these weights are unbiased. The
// variance of a weight with inclusion probability p is 1/p - 1; the bound is five standard errors.
TEST(QuerySample, WeightsHaveMeanOne) {
  constexpr int kDraws = 20000;
  const QuerySample sample{1.0 / 8, 3};
  std::vector<double> mean(32), largest(32);
  for (std::int64_t head = 0; head < kDraws; ++head) {
    const auto weights = sample.horvitz_thompson_weights(4096, 1, 0, head);
    ASSERT_EQ(weights.size(), mean.size());
    for (std::size_t b = 0; b < mean.size(); ++b) {
      mean[b] += weights[b] / static_cast<double>(kDraws);
      largest[b] = std::max<double>(largest[b], weights[b]);
    }
  }
  for (std::size_t b = 0; b < mean.size(); ++b)
    EXPECT_NEAR(mean[b], 1, 5 * std::sqrt(std::max(0.0, largest[b] - 1) / kDraws) + 1e-6) << b;
  EXPECT_TRUE(std::ranges::is_sorted(largest));  // late blocks are drawn less often
  EXPECT_EQ(largest.front(), 1);                 // log-uniform: the first block is certain
}

}  // namespace
}  // namespace qkscope
