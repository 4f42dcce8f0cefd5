#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "engine/statistics/moments.h"

namespace qkscope {
namespace {

PositionSums straight(const std::vector<std::int64_t>& positions) {
  PositionSums sums;
  sums.n = std::ssize(positions);
  const auto n = static_cast<double>(sums.n);
  for (const auto t : positions) {
    sums.t_mean += static_cast<double>(t) / n;
    sums.u_mean += std::log2(static_cast<double>(t + 1)) / n;
  }
  for (const auto t : positions) {
    const double dt = static_cast<double>(t) - sums.t_mean;
    const double du = std::log2(static_cast<double>(t + 1)) - sums.u_mean;
    sums.t_m2 += dt * dt;
    sums.u_m2 += du * du;
    sums.tu_m2 += dt * du;
  }
  return sums;
}

void expect_near(const PositionSums& found, const PositionSums& expected) {
  EXPECT_EQ(found.n, expected.n);
  const auto close = [](double a, double b) { EXPECT_NEAR(a, b, 1e-12 * (1.0 + std::abs(b))); };
  close(found.t_mean, expected.t_mean);
  close(found.u_mean, expected.u_mean);
  close(found.t_m2, expected.t_m2);
  // Bound for sums of squares of values around 10 with a spread near 1.
  EXPECT_NEAR(found.u_m2, expected.u_m2, 1e-10 * (1.0 + expected.u_m2));
  EXPECT_NEAR(found.tu_m2, expected.tu_m2, 1e-10 * (1.0 + expected.tu_m2));
}

TEST(Positions, RangeSumsMatchDirectSums) {
  PositionPrefixSums table;
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 100; t < 5000; ++t) positions.push_back(t);
  expect_near(table.sums_over(100, 5000).to_position_sums(), straight(positions));
  EXPECT_EQ(table.sums_over(7, 7).n, 0);
  const auto one = table.sums_over(7, 8).to_position_sums();
  EXPECT_EQ(one.t_mean, 7.0);
  EXPECT_EQ(one.t_m2, 0.0);
  EXPECT_EQ(one.u_m2, 0.0);
}

TEST(Positions, DocumentsSplitIntoRowSetsAndBuckets) {
  const std::vector<std::int64_t> lengths = {1, 3, 40, 40, 25};
  const auto sums = sum_document_positions(lengths, 4, 16, 2);
  std::vector<std::int64_t> first, body, buckets[2];
  for (const auto length : lengths)
    for (std::int64_t t = 0; t < length; ++t) {
      (t < 4 ? first : body).push_back(t);
      buckets[std::min<std::int64_t>(t / 16, 1)].push_back(t);
    }
  expect_near(sums.first.to_position_sums(), straight(first));
  expect_near(sums.body.to_position_sums(), straight(body));
  expect_near(sums.buckets[0].to_position_sums(), straight(buckets[0]));
  expect_near(sums.buckets[1].to_position_sums(), straight(buckets[1]));
}

}  // namespace
}  // namespace qkscope
