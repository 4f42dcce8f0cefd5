#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "cpu_targets.h"
#include "engine/ops/attention.h"
#include "engine/statistics/random_moments.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kDim = 8;
// Ratios of mean to standard deviation per channel, then a constant channel and one with an
// outlier.
constexpr float kRatio[] = {0, 1, 8, 10, 30, 100};

// (rows, heads, dim)
Tensor planted(std::int64_t rows, unsigned seed) {
  auto x = random_tensor({rows, kHeads, kDim}, seed);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const auto channel = i % kDim;
    auto& value = x.data<float>()[i];
    if (channel < 6) value += kRatio[channel];
    if (channel == 6) value = 0.3f;
    if (channel == 7 && i / (kDim * kHeads) == rows / 2) value = 1000.0f;
  }
  return x;
}

MomentRequest request(std::int64_t bucket_size = 100, std::int64_t buckets = 4) {
  MomentRequest r;
  r.shape = {kHeads, kDim, 3, buckets, true};
  r.first = 4;
  r.bucket_size = bucket_size;
  return r;
}

TestRows rows_between(const Tensor& x, std::int64_t begin, std::int64_t end, std::int64_t first) {
  TestRows rows;
  rows.heads = kHeads;
  rows.dim = kDim;
  for (auto r = begin; r < end; ++r) rows.position.push_back(r - first);
  rows.values.assign(x.data<float>() + begin * kHeads * kDim,
                     x.data<float>() + end * kHeads * kDim);
  return rows;
}

class DocumentMomentsTest : public EachCpuTarget {};

// Bound of docs/reference/statistics.md for the CPU: 1e-12 of the scale of each sum; min, max and n
// are exact.
TEST_P(DocumentMomentsTest, MatchTwoPassFloat64Moments) {
  for (const std::int64_t length : {1, 3, 4, 5, 256, 257, 512, 4096}) {
    const auto x = planted(length, 1);
    const auto found = compute_document_moments(x, {0, length}, request());
    ASSERT_FALSE(found.nonfinite_head);
    const auto first = std::min<std::int64_t>(4, length);
    if (length > 5) {  // fewer rows have no spread to measure by
      EXPECT_LT(difference(found.moments.body, moments_of(rows_between(x, first, length, 0), 3)),
                1e-12)
          << length;
    }
    EXPECT_EQ(found.moments.first.n(), first);
    EXPECT_EQ(found.moments.body.n(), length - first);
    for (std::int64_t head = 0; head < kHeads; ++head)
      EXPECT_EQ(found.moments.body.m2[static_cast<std::size_t>(head * triangle_size(kDim) +
                                                               triangle_index(kDim, 6, 6))],
                0.0)
          << "a constant channel";
  }
}

TEST_P(DocumentMomentsTest, BucketsContainTheRowsOfTheirPositions) {
  const auto x = planted(350, 2);
  const auto found = compute_document_moments(x, {0, 350}, request()).moments.buckets;
  EXPECT_EQ(found.n, (std::vector<std::int64_t>{100, 100, 100, 50}));
  for (std::int64_t bucket = 0; bucket < 4; ++bucket) {
    const auto expected = moments_of(
        rows_between(x, bucket * 100, std::min<std::int64_t>(350, bucket * 100 + 100), 0), 3);
    for (std::int64_t head = 0; head < kHeads; ++head)
      for (std::int64_t j = 0; j < kDim; ++j) {
        const auto i = static_cast<std::size_t>((head * 4 + bucket) * kDim + j);
        EXPECT_NEAR(found.mean[i], expected.mean[static_cast<std::size_t>(head * kDim + j)], 1e-10);
        const auto diagonal = expected.m2[static_cast<std::size_t>(head * triangle_size(kDim) +
                                                                   triangle_index(kDim, j, j))];
        EXPECT_NEAR(found.m2[i], diagonal, 1e-10 * (1.0 + diagonal));
        EXPECT_NEAR(found.cov[static_cast<std::size_t>((head * 4 + bucket) * triangle_size(kDim) +
                                                       triangle_index(kDim, j, j))],
                    diagonal, 1e-10 * (1.0 + diagonal));
      }
  }
}

// The bits of a document depend on its own rows only.
TEST_P(DocumentMomentsTest, OtherDocumentsChangeNoBit) {
  const auto x = planted(900, 3);
  const auto alone = [&] {
    Tensor part({500, kHeads, kDim});
    std::copy_n(x.data<float>() + 200 * kHeads * kDim, part.size(), part.data<float>());
    return compute_document_moments(part, {0, 500}, request()).moments;
  }();
  const auto packed = compute_document_moments(x, {200, 500}, request()).moments;
  EXPECT_EQ(alone.body.m2, packed.body.m2);
  EXPECT_EQ(alone.first.mean, packed.first.mean);
  EXPECT_EQ(alone.body.m4, packed.body.m4);
  EXPECT_EQ(alone.buckets.cov, packed.buckets.cov);
}

TEST_P(DocumentMomentsTest, RotaryPairNormsFollowTheInterleavedFlag) {
  const auto x = random_tensor({50, kHeads, kDim}, 4);
  auto r = request();
  r.interleaved = true;
  const auto found = compute_document_moments(x, {0, 50}, r).moments.body;
  double expected = 0;
  for (std::int64_t row = 4; row < 50; ++row) {
    const float* of_head = x.data<float>() + (row * kHeads + 1) * kDim;
    expected += std::hypot(static_cast<double>(of_head[2]), static_cast<double>(of_head[3])) / 46;
  }
  EXPECT_NEAR(found.pair_abs[3 + 1], expected, 1e-12);
}

TEST_P(DocumentMomentsTest, NanAndInfinityAreReportedWithTheirHead) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto x = random_tensor({600, kHeads, kDim}, 5);
    x.data<float>()[(400 * kHeads + 1) * kDim + 2] = bad;
    EXPECT_EQ(compute_document_moments(x, {0, 600}, request()).nonfinite_head, 1);
    EXPECT_FALSE(compute_document_moments(x, {0, 400}, request()).nonfinite_head);
  }
}

QKSCOPE_EACH_CPU_TARGET(DocumentMomentsTest);

TEST(DocumentMoments, HaveTheSameBitsOnEveryCpuTargetWithFma) {
  const auto x = planted(1000, 6);
  std::vector<double> expected;
  for_each_cpu_target([&](const std::string& target) {
    if (!cpu_target_has_fma(target)) return;
    const auto found = compute_document_moments(x, {0, 1000}, request()).moments.body.m2;
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected);
  });
}

}  // namespace
}  // namespace qkscope
