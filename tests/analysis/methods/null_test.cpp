// Correlations along the direction of drift beside what shuffled positions give.
#include <algorithm>
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "analysis/methods/rotation.h"
#include "base/numerics/random.h"
#include "base/numerics/sample_statistics.h"
#include "planted_rows.h"

namespace qkscope {
namespace {

constexpr int kHeads = kSanitized ? 60 : 400;

// Queries and keys that have nothing to do with position.
PlantedOptions without_drift(int dim, int examples, std::uint64_t seed) {
  auto options = small_head(seed);
  options.dim = dim;
  options.examples = examples;
  options.drift_q = options.drift_k = 0;
  return options;
}

RotationOptions draws(int count, std::uint64_t seed) {
  RotationOptions options;
  options.null_draws = count;
  options.seed = seed;
  return options;
}

PositionNull null_of(const PlantedHead& head, const RotationOptions& options) {
  const auto found = find_drift_and_separation(head.queries, head.keys, head.pooled, options);
  return permutation_null_of_drift(head.queries, head.keys, head.pooled, found, options);
}

// How likely p values are as far from uniform as these, by Kolmogorov and Smirnov. A p value is a
// multiple of 1 / (draws + 1); a number below it spreads each over its step.
double uniformity(std::vector<double> p, int draws) {
  Random random(7);
  for (double& value : p) value -= random.uniform() / (draws + 1);
  std::sort(p.begin(), p.end());
  double distance = 0;
  const auto n = static_cast<double>(p.size());
  for (std::size_t i = 0; i < p.size(); ++i)
    distance = std::max(
        {distance, static_cast<double>(i + 1) / n - p[i], p[i] - static_cast<double>(i) / n});
  return kolmogorov_p_value(std::ssize(p), distance);
}

// Without drift p values are uniform, whether rows are shuffled one by one or sums are drawn.
void expect_uniform(int dim, int examples) {
  constexpr int kDraws = 99;
  std::vector<double> position, q, k;
  double reached = 0;
  for (std::uint64_t seed = 0; seed < kHeads; ++seed) {
    const auto head = plant(without_drift(dim, examples, seed), 1000 + seed);
    const auto null = null_of(head, draws(kDraws, seed));
    position.push_back(null.position_r_p);
    q.push_back(null.r_q_a_p);
    k.push_back(null.r_k_a_p);
    reached += null.position_r / kHeads;
  }
  EXPECT_GT(reached, 0.7 * std::sqrt(dim / (16.0 * examples)));
  // Seeds are fixed: either this holds or the null is wrong.
  EXPECT_GT(uniformity(position, kDraws), 0.01);
  EXPECT_GT(uniformity(q, kDraws), 0.01);
  EXPECT_GT(uniformity(k, kDraws), 0.01);
}

TEST(Null, PValuesAreUniformWithFewRows) {
  expect_uniform(16, 4);  // about 32 queries and 32 keys: positions are shuffled
}

TEST(Null, PValuesAreUniformWithManyRows) {
  expect_uniform(6, 20);  // about 160 of each: sums are drawn
}

TEST(Null, PValuesAreUniformJustAboveTheBound) {
  expect_uniform(8, 5);  // about 40 of each, five per dimension
}

TEST(Null, DriftIsFarOutsideIt) {
  const auto head = plant(small_head(3), 3);
  const auto null = null_of(head, draws(200, 1));
  EXPECT_DOUBLE_EQ(null.position_r_p, 1.0 / 201);
  EXPECT_DOUBLE_EQ(null.r_q_a_p, 1.0 / 201);
  EXPECT_LT(null.position_r, 0.3);
}

// Few rows in many dimensions correlate with anything: the null says so.
TEST(Null, FewRowsInManyDimensionsReachHighCorrelations) {
  const auto head = plant(without_drift(64, 2, 5), 5);
  const auto options = draws(200, 1);
  const auto found = find_drift_and_separation(head.queries, head.keys, head.pooled, options);
  const auto null = null_of(head, options);
  EXPECT_GT(found.r_q_a, 0.6);
  EXPECT_GT(null.r_q_a, 0.6);
  EXPECT_GT(null.position_r_p, 0.01);
}

// The two ways give the same numbers where both hold.
TEST(Null, DrawnSumsAgreeWithShuffledRows) {
  // Repeated rows: the bound is by rows per dimension, and a dimension of zeros moves it.
  auto options = without_drift(6, 12, 9);  // about 96 rows: drawn
  const auto narrow = plant(options, 9);
  auto wide_rows = [](const HeadRows& rows) {  // the same rows in 30 dimensions: shuffled
    HeadRows wide = rows;
    wide.head_dim = 30;
    wide.vectors.clear();
    for (std::size_t i = 0; i < rows.position.size(); ++i) {
      wide.vectors.insert(wide.vectors.end(), rows.vectors.begin() + static_cast<long>(6 * i),
                          rows.vectors.begin() + static_cast<long>(6 * i + 6));
      wide.vectors.resize(wide.vectors.size() + 24);
    }
    return wide;
  };
  const PlantedHead wide(wide_rows(narrow.query_rows), wide_rows(narrow.key_rows));
  const auto drawn = null_of(narrow, draws(4000, 1));
  const auto shuffled = null_of(wide, draws(4000, 2));
  // |r| spreads by about 0.06: the mean of 4000 has an error of 0.001.
  EXPECT_NEAR(drawn.position_r, shuffled.position_r, 0.006);
  EXPECT_NEAR(drawn.r_q_a, shuffled.r_q_a, 0.006);
  EXPECT_NEAR(drawn.r_k_a, shuffled.r_k_a, 0.006);
}

TEST(Null, RowOrderDoesNotMatter) {
  for (const int dim : {6, 40}) {  // drawn sums, shuffled rows
    const auto head = plant(without_drift(dim, 12, 8), 8);
    const PlantedHead mixed(shuffled(head.query_rows, 1), shuffled(head.key_rows, 2));
    const auto one = null_of(head, draws(50, 3));
    const auto other = null_of(mixed, draws(50, 3));
    EXPECT_NEAR(one.position_r, other.position_r, 1e-10);
    EXPECT_NEAR(one.r_k_a, other.r_k_a, 1e-10);
    EXPECT_EQ(one.r_q_a_p, other.r_q_a_p);
  }
}

TEST(Null, NoDrawsNoNumbers) {
  const auto head = plant(small_head(4), 4);
  const auto null = null_of(head, draws(0, 1));
  EXPECT_TRUE(std::isnan(null.position_r));
  EXPECT_TRUE(std::isnan(null.r_k_a_p));
}

}  // namespace
}  // namespace qkscope
