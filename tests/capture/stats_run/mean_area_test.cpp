#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "base/core/numbers.h"
#include "capture/stats_run/stats_pass.h"

namespace qkscope {
namespace {

constexpr std::int64_t kDim = 8;
constexpr std::int64_t kPositions = 500;

ModelConfig model(std::int64_t rotary, bool interleaved) {
  ModelConfig config;
  config.n_layers = 1;
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(kDim));
  config.layers.resize(1);
  config.layers[0].rope = rotary > 0 ? 0 : -1;
  config.rope_interleaved = interleaved;
  if (rotary > 0) {
    config.ropes.resize(1);
    config.ropes[0].dim = rotary;
    config.ropes[0].theta = 10000.0;
  }
  return config;
}

// Reference implementation of kvpress: rotate both means to every position, take the softmax of the
// last row and its cumulative sum.
double plain(const std::vector<double>& q, const std::vector<double>& k, std::int64_t rotary,
             bool interleaved) {
  const auto rotated = [&](std::vector<double> x, std::int64_t position) {
    const auto half = rotary / 2;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) *
          std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rotary));
      double& a = x[as_index(interleaved ? 2 * i : i)];
      double& b = x[as_index(interleaved ? 2 * i + 1 : i + half)];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
    return x;
  };
  const auto last = rotated(q, kPositions - 1);
  std::vector<double> weights;
  double sum = 0;
  for (std::int64_t n = 0; n < kPositions; ++n) {
    const auto key = rotated(k, n);
    double score = 0;
    for (std::size_t c = 0; c < key.size(); ++c) score += last[c] * key[c];
    weights.push_back(std::exp(score / std::sqrt(static_cast<double>(kDim))));
    sum += weights.back();
  }
  double cumulated = 0;
  double area = 0;
  for (const double weight : weights) {
    cumulated += weight / sum;
    area += cumulated / static_cast<double>(kPositions);
  }
  return area;
}

TEST(MeanArea, EqualsTheReferenceWithRope) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0.0, 2.0);
  std::vector<double> q(as_index(kDim));
  std::vector<double> k(as_index(kDim));
  for (auto* values : {&q, &k})
    for (double& value : *values) value = normal(random);
  for (const std::int64_t rotary : {0, 4, 8})
    for (const bool interleaved : {false, true})
      // Frequencies are float32: at 500 positions the angle error is up to 3e-5.
      EXPECT_NEAR(DuoAttentionScorer(model(rotary, interleaved), 0, 1000).compute(q, k),
                  plain(q, k, rotary, interleaved), 1e-5)
          << rotary << ", " << interleaved;
}

TEST(MeanArea, IsUniformWithoutRope) {
  const std::vector<double> any(as_index(kDim), 0.7);
  EXPECT_NEAR(DuoAttentionScorer(model(0, false), 0, 1000).compute(any, any), 0.501, 1e-12);
}

TEST(ExactRows, AreEvenlySpacedAndIncludeTheLastRow) {
  EXPECT_EQ(evenly_spaced_rows(100, 4), (std::vector<std::int64_t>{24, 49, 74, 99}));
  EXPECT_EQ(evenly_spaced_rows(3, 8), (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(ExactRows, CountTheLargestKeys) {
  std::vector<float> p(2000, 0.0f);
  p[7] = 0.5f;
  p[1500] = 0.25f;
  p[30] = 0.125f;
  p[31] = 0.125f;
  EXPECT_EQ(measure_row_concentration(p), (std::vector<double>{4, 4, 4, 1, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace qkscope
