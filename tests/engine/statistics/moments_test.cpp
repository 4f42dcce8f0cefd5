#include "engine/statistics/moments.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "random_moments.h"

namespace qkscope {
namespace {

TEST(Moments, MergedPartsEqualTheMomentsOfAllRows) {
  const auto a = random_rows(300, 0, 1);
  const auto b = random_rows(77, 40, 2);
  auto merged = moments_of(a);
  merge_moments(merged, moments_of(b));
  EXPECT_LT(difference(merged, moments_of(a + b)), 1e-12);
}

TEST(Moments, MergingEmptyMomentsChangesNothing) {
  const auto rows = moments_of(random_rows(9, 3, 3));
  auto merged = make_head_moments({2, 5, 2, 1, false});
  merge_moments(merged, rows);
  EXPECT_EQ(difference(merged, rows), 0.0);
  merge_moments(merged, make_head_moments({2, 5, 2, 1, false}));
  EXPECT_EQ(difference(merged, rows), 0.0);
}

// Splits into any number of parts in any order, with the bound of docs/reference/statistics.md.
TEST(Moments, AnySplitAndOrderAgreesWithinTheDocumentedBound) {
  std::vector<TestRows> documents;
  TestRows all;
  for (unsigned i = 0; i < 64; ++i) {
    documents.push_back(random_rows(20 + static_cast<std::int64_t>(i) * 7 % 50, 0, 10 + i));
    all = all + documents.back();
  }
  const auto expected = moments_of(all);
  for (const std::size_t parts : {2u, 7u, 64u})
    for (unsigned seed = 0; seed < 3; ++seed) {
      std::vector<std::size_t> order(documents.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(seed));
      auto whole = make_head_moments({2, 5, 2, 1, false});
      for (std::size_t part = 0; part < parts; ++part) {
        auto sums = make_head_moments({2, 5, 2, 1, false});
        for (std::size_t i = part; i < order.size(); i += parts)
          merge_moments(sums, moments_of(documents[order[i]]));
        merge_moments(whole, sums);
      }
      EXPECT_LT(difference(whole, expected), 1e-11) << parts << " parts";
    }
}

TEST(Moments, ConstantChannelsStayConstant) {
  auto rows = random_rows(100, 0, 5);
  for (auto& value : rows.values) value = 0.1f;
  auto merged = moments_of(rows);
  merged.m2.assign(merged.m2.size(), 0.0);
  merged.mean.assign(merged.mean.size(), 0.1f);
  merged.m3.assign(merged.m3.size(), 0.0);
  merged.m4.assign(merged.m4.size(), 0.0);
  const auto part = merged;
  for (int i = 0; i < 50; ++i) merge_moments(merged, part);
  for (const double m2 : merged.m2) EXPECT_EQ(m2, 0.0);
  for (const double m4 : merged.m4) EXPECT_EQ(m4, 0.0);
}

TEST(Moments, BucketsMergeIndependently) {
  const MomentShape shape{1, 2, 0, 3, true};
  auto a = make_bucket_moments(shape);
  a.n = {4, 0, 1};
  a.mean = {1, 2, 0, 0, 5, 6};
  a.m2 = {2, 3, 0, 0, 0, 0};
  a.cov = {2, 1, 3, 0, 0, 0, 0, 0, 0};
  auto b = make_bucket_moments(shape);
  b.n = {4, 2, 0};
  b.mean = {3, 2, 7, 8, 0, 0};
  b.m2 = {0, 1, 1, 1, 0, 0};
  b.cov = {0, 0, 1, 1, 1, 1, 0, 0, 0};
  merge_moments(a, b);
  EXPECT_EQ(a.n, (std::vector<std::int64_t>{8, 2, 1}));
  EXPECT_EQ(a.mean, (std::vector<double>{2, 2, 7, 8, 5, 6}));
  EXPECT_EQ(a.m2, (std::vector<double>{2 + 4 * 2, 4, 1, 1, 0, 0}));
  EXPECT_EQ(a.cov, (std::vector<double>{2 + 4 * 2, 1, 4, 1, 1, 1, 0, 0, 0}));
}

}  // namespace
}  // namespace qkscope
