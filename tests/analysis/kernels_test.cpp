// The analyses' own kernels against plain loops.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "analysis/kernels/bucket_ranges.h"
#include "analysis/kernels/plane_units.h"
#include "planted_rows.h"

namespace qkscope {
namespace {

Matrix other_axes(std::int64_t rows) {
  Matrix axes(rows, 8);
  for (std::size_t i = 0; i < axes.data.size(); ++i)
    axes.data[i] = std::sin(static_cast<double>(i));
  return axes;
}

TEST(PlaneUnits, PointWhereTheRowsDo) {
  const auto head = plant(small_head(3), 3);
  const Matrix basis = planted_basis(small_head(3));
  Matrix axes(6, 8);
  std::copy_n(basis.data.begin(), axes.data.size(), axes.data.begin());
  const auto count = head.queries.size();
  PlaneUnits units;
  units.start(other_axes(40), 3 * count);  // what was there before must not matter
  units.start(axes, count);
  std::vector<std::uint32_t> backwards;
  for (std::int64_t i = 0; i < count; ++i)
    backwards.push_back(static_cast<std::uint32_t>(count - 1 - i));
  units.project(head.queries, head.pooled, backwards);
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t plane = 0; plane < 3; ++plane) {
      double x = 0;
      double y = 0;
      for (std::int64_t j = 0; j < 8; ++j) {
        const auto at = static_cast<std::size_t>(j);
        const double value =
            head.query_rows.vectors[static_cast<std::size_t>(8 * i + j)] - head.pooled.mean[at];
        x += value * axes(2 * plane, j);
        y += value * axes(2 * plane + 1, j);
      }
      const double angle = std::atan2(y, x);
      const auto& unit = units.group(0)[backwards[static_cast<std::size_t>(i)]];
      EXPECT_NEAR(unit.re[plane], std::cos(angle), 1e-12);
      EXPECT_NEAR(unit.im[plane], std::sin(angle), 1e-12);
    }
}

TEST(BucketRanges, AreFoundFromTheRows) {
  const auto head = plant(small_head(1), 1);
  const BucketRanges uniform(rows_of(head.query_rows), rows_of(head.key_rows));
  EXPECT_EQ(uniform.range(3), (std::pair<std::int64_t, std::int64_t>{384, 512}));
  EXPECT_TRUE(uniform.reaches(3, 2, 128));
  EXPECT_FALSE(uniform.reaches(3, 1, 128));
  EXPECT_TRUE(uniform.reaches(3, 1, 130));
  HeadRows doubling = head.query_rows;
  for (std::size_t i = 0; i < doubling.position.size(); ++i)
    doubling.bucket[i] =
        std::max(4, static_cast<int>(std::log2(static_cast<double>(doubling.position[i]) + 1)));
  const BucketRanges log(rows_of(doubling), rows_of(doubling));
  EXPECT_EQ(log.range(4), (std::pair<std::int64_t, std::int64_t>{0, 31}));
  EXPECT_EQ(log.range(6), (std::pair<std::int64_t, std::int64_t>{63, 127}));
}

TEST(BucketRanges, AreKnownFromTheSampler) {
  using Range = std::pair<std::int64_t, std::int64_t>;
  const BucketRanges equal(BucketLayout{BucketLayout::Kind::equal, 100});
  EXPECT_EQ(equal.range(0), (Range{0, 100}));
  EXPECT_EQ(equal.range(3), (Range{300, 400}));
  for (const std::int64_t size : {100, 128}) {  // both: no bucket is below 7
    const BucketRanges doubling(BucketLayout{BucketLayout::Kind::doubling, size});
    EXPECT_EQ(doubling.range(7), (Range{0, 255}));
    EXPECT_EQ(doubling.range(8), (Range{255, 511}));
  }
}

}  // namespace
}  // namespace qkscope
