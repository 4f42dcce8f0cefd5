// The analyses' own kernels against plain loops.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "analysis/methods/kernels/bucket_ranges.h"
#include "analysis/methods/kernels/pair_heatmap.h"
#include "analysis/methods/kernels/plane_units.h"
#include "analysis/methods/kernels/vector_loops.h"
#include "cpu_targets.h"
#include "planted_rows.h"

namespace qkscope {
namespace {

std::vector<double> waves(std::size_t count, double frequency) {
  std::vector<double> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = std::sin(frequency * static_cast<double>(i + 1));
  return x;
}

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
  std::vector<const float*> backwards;
  for (std::int64_t i = count - 1; i >= 0; --i)
    backwards.push_back(head.query_rows.vectors.data() + 8 * i);
  const std::vector<double> line = waves(8, 0.3);
  PlaneUnits units;
  // What was there before must not matter.
  units.project(other_axes(40), line, backwards, head.queries.mean);
  units.project(axes, line, backwards, head.pooled.mean);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::size_t>(count - 1 - i);
    double along = 0;
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
      const auto& unit = units.plane(plane)[place];
      EXPECT_NEAR(unit.real(), std::cos(angle), 1e-12);
      EXPECT_NEAR(unit.imag(), std::sin(angle), 1e-12);
    }
    for (std::size_t j = 0; j < 8; ++j)
      along +=
          (head.query_rows.vectors[static_cast<std::size_t>(8 * i) + j] - head.pooled.mean[j]) *
          line[j];
    EXPECT_NEAR(units.on_line()[place], along, 1e-12 * std::fabs(along) + 1e-12);
  }
}

// Rows at the centre, and more rows than are taken together.
TEST(PlaneUnits, PointAlongTheFirstAxisAtTheCentre) {
  constexpr std::size_t kRows = 7;
  double xy[kRows * 8] = {};
  for (std::size_t i = 0; i < kRows * 8; ++i)
    xy[i] = i % 3 == 0 ? 0 : std::cos(static_cast<double>(i));
  xy[8 * 5 + 1] = xy[8 * 5 + 5] = 0;
  std::vector<std::complex<double>> units(4 * kRows);
  unit_vectors(xy, kRows, units.data(), kRows);
  for (std::size_t i = 0; i < kRows; ++i)
    for (std::size_t plane = 0; plane < 4; ++plane) {
      const std::complex<double> row(xy[8 * i + plane], xy[8 * i + 4 + plane]);
      const auto expected = row == 0.0 ? 1.0 : row / std::abs(row);
      EXPECT_NEAR(std::abs(units[plane * kRows + i] - expected), 0, 1e-15) << i;
    }
}

Matrix wave_matrix(std::int64_t rows, std::int64_t cols, double frequency) {
  Matrix matrix(rows, cols);
  const auto x = waves(matrix.data.size(), frequency);
  std::copy(x.begin(), x.end(), matrix.data.begin());
  return matrix;
}

// A few rows in turned coordinates, of which at() is what the kernel should find.
struct TurnedByHand {
  explicit TurnedByHand(std::size_t dim_)
      : dim(dim_),
        mean(waves(dim, 0.3)),
        sign(waves(dim, 1.7)),
        w(waves(dim, 0.9)),
        direction(waves(dim, 2.1)) {
    const auto x = waves(7 * dim, 0.77);
    vectors.assign(x.begin(), x.end());
    for (double& value : sign) value = value < 0 ? -1 : 1;
  }

  double along_w(std::int64_t row) const {
    double along = 0;
    for (std::size_t j = 0; j < dim; ++j) along += w[j] * centred(row, j);
    return along;
  }
  double at(std::int64_t row, std::size_t j) const {
    return centred(row, j) - 2 * along_w(row) * w[j];
  }
  double centred(std::int64_t row, std::size_t j) const {
    return sign[j] * (vectors[static_cast<std::size_t>(row) * dim + j] - mean[j]);
  }

  std::size_t dim;
  std::vector<float> vectors;  // (7, dim)
  std::vector<double> mean;
  std::vector<double> sign;
  std::vector<double> w;
  std::vector<double> direction;
  std::vector<std::int64_t> order = {6, 0, 3, 3, 1};
};

TEST(VectorLoops, TurnRows) {
  for_each_cpu_target([](const std::string&) {
    for (const std::size_t dim : {5U, 16U, 37U}) {
      const TurnedByHand hand(dim);
      std::vector<double> rows(hand.order.size() * dim + TurnedRows::kBehind);
      std::vector<double> along_direction(hand.order.size());
      turn_rows(
          {hand.vectors.data(), dim, hand.order, hand.mean, hand.sign, hand.w, hand.direction},
          rows.data(), along_direction.data());
      for (std::size_t i = 0; i < hand.order.size(); ++i) {
        double along = 0;
        for (std::size_t j = 0; j < dim; ++j) {
          const double expected = hand.at(hand.order[i], j);
          EXPECT_NEAR(rows[i * dim + j], expected, 1e-13);
          along += expected * hand.direction[j];
        }
        EXPECT_NEAR(along_direction[i], along, 1e-12);
      }
    }
  });
}

// Rows 0.. of two buckets, a bucket after its own start, and what is left of them.
TEST(VectorLoops, TakeTheDriftOutOfLines) {
  for_each_cpu_target([](const std::string&) {
    constexpr auto kLines = DriftingRows::kLines;
    for (const std::int64_t dim : {5, 16, 37})
      for (const std::size_t rows : {1U, 2U, 7U, 519U}) {
        const auto count = std::min(dim, kLines);
        const auto x = waves(rows * static_cast<std::size_t>(dim), 0.77);
        const std::vector<float> vectors(x.begin(), x.end());
        const auto reflected = waves(rows, 0.41);
        const auto time = waves(rows, 0.13);
        const Matrix start = wave_matrix(2, kLines, 0.59);
        std::vector<std::int32_t> bucket(rows);
        for (std::size_t i = 0; i < rows; ++i) bucket[i] = i % 3 == 0 ? 1 : 0;
        DriftingRows drifting{vectors.data(), dim,   count, bucket, reflected,
                              time,           start, {},    {},     {}};
        for (std::int64_t j = 0; j < count; ++j) {
          drifting.sign[j] = j % 2 == 0 ? 1 : -1;
          drifting.w[j] = std::sin(0.9 * static_cast<double>(j));
          drifting.drift[j] = std::sin(1.7 * static_cast<double>(j));
        }
        const auto stride =
            static_cast<std::int64_t>(rows + 3) / DriftingRows::kRows * DriftingRows::kRows;
        std::vector<double> out(static_cast<std::size_t>(stride * kLines));
        const auto found = take_drift(drifting, stride, out.data());
        for (std::int64_t j = 0; j < count; ++j) {
          double sums[2][2] = {};
          PowerSums residual;
          for (std::size_t i = 0; i < rows; ++i) {
            const double off =
                drifting.sign[j] *
                    vectors[i * static_cast<std::size_t>(dim) + static_cast<std::size_t>(j)] -
                reflected[i] * drifting.w[j] + start(bucket[i], j);
            const double rest = off - drifting.drift[j] * time[i];
            EXPECT_NEAR(out[static_cast<std::size_t>(j * stride) + i], rest, 1e-15 * 8);
            sums[bucket[i]][0] += off;
            sums[bucket[i]][1] += off * off;
            residual.first += off;
            residual.second += std::pow(rest, 2);
            residual.third += std::pow(rest, 3);
            residual.fourth += std::pow(rest, 4);
          }
          for (std::int64_t b = 0; b < 2; ++b) {
            EXPECT_NEAR(found.sum(b, j), sums[b][0], 1e-11);
            EXPECT_NEAR(found.squares(b, j), sums[b][1], 1e-11);
          }
          EXPECT_NEAR(found.residual[j].first, residual.first, 1e-11);
          EXPECT_NEAR(found.residual[j].second, residual.second, 1e-11);
          EXPECT_NEAR(found.residual[j].third, residual.third, 1e-11);
          EXPECT_NEAR(found.residual[j].fourth, residual.fourth, 1e-11);
        }
      }
  });
}

// Tiles of every shape, with a pair of equal keys.
TEST(VectorLoops, ZOfPairsIsTheirDifferenceOverItsSpread) {
  constexpr std::int64_t kColumns = 19;
  constexpr std::int64_t kFirst = 4;  // key of the block
  const KeyTile keys{kFirst, wave_matrix(9, 7, 0.37), {}};
  const Matrix scores = wave_matrix(9 + kTileColumns, kColumns, 0.61);
  Matrix weights = wave_matrix(7, kColumns + kTileColumns, 0.83);
  for (double& x : weights.data) x *= x;
  const auto moves = waves(9, 0.29);
  const std::vector<Pair> pairs = {{4, 9},   {5, 9},   {6, 6}, {7, 12}, {8, 12}, {4, 5},
                                   {11, 12}, {10, 11}, {4, 6}, {4, 12}, {9, 10}, {5, 8},
                                   {7, 7},   {6, 11},  {8, 9}, {5, 12}};
  ASSERT_EQ(std::ssize(pairs), kTilePairs);
  for_each_cpu_target([&](const std::string&) {
    for (std::int64_t stride = 2; stride <= 18; stride += 2)
      for (std::int64_t count = 1; count <= kTilePairs; ++count) {
        const PairTile tile{0, count, 1, stride, 3};
        std::vector<double> start(static_cast<std::size_t>(3 + count * stride + kTileColumns), -1);
        auto slope = start;
        z_lines({keys, scores, moves, weights}, pairs, {&tile, 1}, start.data(), slope.data());
        EXPECT_EQ(start[2], -1);
        for (std::int64_t p = 0; p < count; ++p)
          for (std::int64_t c = 0; c < stride; ++c) {
            const auto i = pairs[static_cast<std::size_t>(p)].first - kFirst;
            const auto j = pairs[static_cast<std::size_t>(p)].second - kFirst;
            double variance = 0;
            for (std::int64_t k = 0; k < 7; ++k)
              variance += weights(k, 1 + c) * std::pow(keys.vectors(i, k) - keys.vectors(j, k), 2);
            const double inverse = variance > 0 ? 1 / std::sqrt(variance) : 0;
            const auto at = static_cast<std::size_t>(3 + p * stride + c);
            EXPECT_NEAR(start[at], (scores(i, 1 + c) - scores(j, 1 + c)) * inverse, 1e-13);
            EXPECT_NEAR(
                slope[at],
                (moves[static_cast<std::size_t>(i)] - moves[static_cast<std::size_t>(j)]) * inverse,
                1e-13);
          }
        auto again = start;
        z_lines({keys, scores, moves, weights}, pairs, {&tile, 1}, again.data(), nullptr);
        EXPECT_EQ(again, start);
      }
  });
}

TEST(PairHeatmap, HoldsTheSameHoweverPointsAreAdded) {
  const std::vector<double> query = {5, 7, 40, 41, 60, 99, 140};  // some at edges, one beyond
  const auto value = waves(query.size(), 0.5);
  PairHeatmap together(100, 10);
  PairHeatmap apart(100, 10);
  for (const double weight : {1.0, 2.5}) {
    together.set_weight(weight);
    apart.set_weight(weight);
    for (const auto& [first, second] : {std::pair{1.0, 3.0}, {0.0, 20.0}, {30.0, 50.0}}) {
      together.add({first, second, query, value});
      auto row = apart.row(first, second);
      for (std::size_t i = 0; i < query.size(); ++i) row.add(query[i], value[i]);
    }
  }
  const auto expected = together.cells();
  const auto found = apart.cells();
  ASSERT_EQ(found.size(), expected.size());
  std::int64_t pairs = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].query_distance_low, expected[i].query_distance_low);
    EXPECT_EQ(found[i].pairs, expected[i].pairs);
    EXPECT_EQ(found[i].eligible, expected[i].eligible);
    EXPECT_NEAR(found[i].ap, expected[i].ap, 1e-15);
    pairs += found[i].pairs;
  }
  EXPECT_EQ(pairs, 2 * 3 * std::ssize(query));
}

TEST(DistinctNumbers, AreNumberedInAscendingOrder) {
  const std::vector<std::int32_t> all = {5, -3, 5, 261, 1 << 30, -3, 5 + 256};
  const DistinctNumbers distinct(all);
  EXPECT_EQ(distinct.numbers, (std::vector<std::int32_t>{-3, 5, 261, 1 << 30}));
  EXPECT_EQ(distinct.place, (std::vector<std::int32_t>{1, 0, 1, 2, 3, 0, 2}));
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
