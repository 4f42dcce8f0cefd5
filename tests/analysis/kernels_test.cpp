// The analyses' own kernels against plain loops.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "analysis/kernels/bucket_ranges.h"
#include "analysis/kernels/plane_units.h"
#include "analysis/kernels/vector_loops.h"
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
      const auto& unit = units.plane(plane)[backwards[static_cast<std::size_t>(i)]];
      EXPECT_NEAR(unit.real(), std::cos(angle), 1e-12);
      EXPECT_NEAR(unit.imag(), std::sin(angle), 1e-12);
    }
}

// Rows at the centre, and more rows than are taken together.
TEST(PlaneUnits, PointAlongTheFirstAxisAtTheCentre) {
  constexpr std::size_t kRows = 7;
  double xy[kRows * 8] = {};
  for (std::size_t i = 0; i < kRows * 8; ++i)
    xy[i] = i % 3 == 0 ? 0 : std::cos(static_cast<double>(i));
  xy[8 * 5 + 1] = xy[8 * 5 + 5] = 0;
  std::uint32_t place[kRows];
  for (std::uint32_t i = 0; i < kRows; ++i) place[i] = (3 * i) % kRows;
  std::vector<std::complex<double>> units(4 * kRows);
  unit_vectors(xy, place, units.data(), kRows);
  for (std::size_t i = 0; i < kRows; ++i)
    for (std::size_t plane = 0; plane < 4; ++plane) {
      const std::complex<double> row(xy[8 * i + plane], xy[8 * i + 4 + plane]);
      const auto expected = row == 0.0 ? 1.0 : row / std::abs(row);
      EXPECT_NEAR(std::abs(units[plane * kRows + place[i]] - expected), 0, 1e-15) << i;
    }
}

TEST(BucketRanges, AreFoundFromTheRows) {
  const auto head = plant(small_head(1), 1);
  const BucketRanges uniform(rows_of(head.query_rows), rows_of(head.key_rows));
  EXPECT_EQ(uniform.range(3), (PositionRange{384, 512}));
  EXPECT_TRUE(uniform.reaches(3, 2, 128));
  EXPECT_FALSE(uniform.reaches(3, 1, 128));
  EXPECT_TRUE(uniform.reaches(3, 1, 130));
  HeadRows doubling = head.query_rows;
  for (std::size_t i = 0; i < doubling.position.size(); ++i)
    doubling.bucket[i] =
        std::max(4, static_cast<int>(std::log2(static_cast<double>(doubling.position[i]) + 1)));
  const BucketRanges log(rows_of(doubling), rows_of(doubling));
  EXPECT_EQ(log.range(4), (PositionRange{0, 31}));
  EXPECT_EQ(log.range(6), (PositionRange{63, 127}));
}

TEST(BucketRanges, AreKnownFromTheSampler) {
  SamplerOptions sampler;
  sampler.type = SamplerType::uniform;
  sampler.min_bucket_size = 100;
  EXPECT_EQ(BucketRanges(sampler).range(3), (PositionRange{300, 400}));
  EXPECT_TRUE(BucketRanges(sampler).reaches(3, 1, 102));
  EXPECT_FALSE(BucketRanges(sampler).reaches(3, 1, 101));
  sampler.type = SamplerType::log_uniform;  // no bucket is below 7
  EXPECT_EQ(BucketRanges(sampler).range(7), (PositionRange{0, 255}));
  EXPECT_EQ(BucketRanges(sampler).range(8), (PositionRange{255, 511}));
}

}  // namespace
}  // namespace qkscope
