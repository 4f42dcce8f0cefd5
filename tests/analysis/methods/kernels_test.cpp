// The analyses' own kernels against plain loops.
#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "analysis/methods/kernels/key_pairs.h"
#include "analysis/methods/kernels/pair_tables.h"
#include "analysis/methods/kernels/query_model.h"
#include "analysis/methods/rotation.h"
#include "base/numerics/products.h"
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
  const Matrix basis = generate_planted_basis(small_head(3));
  Matrix axes(6, 8);
  std::copy_n(basis.data.begin(), axes.data.size(), axes.data.begin());
  const auto count = head.queries.count;
  std::vector<const float*> backwards;
  for (std::int64_t i = count - 1; i >= 0; --i)
    backwards.push_back(head.query_rows.vectors.data() + 8 * i);
  const std::vector<double> line = waves(8, 0.3);
  PlaneUnitVectors units;
  // What was there before must not matter.
  units.project_rows_onto_planes(other_axes(40), line, backwards, head.queries.mean);
  units.project_rows_onto_planes(axes, line, backwards, head.pooled.mean);
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
      const auto& unit = units.unit_vectors_in_plane(plane)[place];
      EXPECT_NEAR(unit.real(), std::cos(angle), 1e-12);
      EXPECT_NEAR(unit.imag(), std::sin(angle), 1e-12);
    }
    for (std::size_t j = 0; j < 8; ++j)
      along +=
          (head.query_rows.vectors[static_cast<std::size_t>(8 * i) + j] - head.pooled.mean[j]) *
          line[j];
    EXPECT_NEAR(units.projections_on_line()[place], along, 1e-12 * std::fabs(along) + 1e-12);
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
  to_unit_vectors(xy, kRows, units.data(), kRows);
  auto expected = units;
  to_unit_vectors_reference(xy, kRows, expected.data(), kRows);
  EXPECT_EQ(expected[5 + kRows], 1.0);  // at the centre
  for (std::size_t i = 0; i < kRows; ++i)
    for (std::size_t plane = 0; plane < 4; ++plane) {
      const auto at = plane * kRows + i;
      EXPECT_NEAR(std::abs(units[at] - expected[at]), 0, 1e-15) << i;
    }
}

// Numbers from a seed, so that shapes can be drawn at random.
FloatMatrix random_matrix(std::int64_t rows, std::int64_t cols, Random& random) {
  FloatMatrix matrix(rows, cols);
  for (float& value : matrix.data) value = static_cast<float>(2 * random.uniform() - 1);
  return matrix;
}

TEST(TurnedRows, AreSignedAndReflectedInTheOrderAskedFor) {
  for (const int dim : {1, 5, 8, 37}) {
    auto options = small_head(3);
    options.dim = std::max(dim, 4);
    const auto head = plant(options, 3);
    auto model = fit_query_model(head.queries, key_mean_signs(head.keys));
    if (dim == 5) model.reflection = {};
    const std::vector<std::int64_t> order = {6, 0, 3, 3, 1};
    const FloatMatrix found = rotate_centred_rows(head.keys, model, order);
    ASSERT_EQ(found.rows, 5);
    for (std::int64_t i = 0; i < 5; ++i) {
      std::vector<double> x(static_cast<std::size_t>(options.dim));
      copy_centred_rows(head.keys, order[static_cast<std::size_t>(i)],
                        order[static_cast<std::size_t>(i)] + 1, x.data());
      const auto expected = to_model_basis(x, model);
      // A few float32 roundings of numbers up to the length of the row.
      for (std::size_t j = 0; j < x.size(); ++j)
        EXPECT_NEAR(found.row(i)[j], expected[j], 5e-7 * norm(x));
    }
  }
}

// Tiles of every width and height, some pairs of equal keys.
TEST(PairKernels, ZScoresMatchTheirReferenceOverRandomShapes) {
  for_each_cpu_target([&](const std::string&) {
    Random random(3);
    for (std::int64_t columns = 1; columns <= 18; ++columns)
      for (std::int64_t count = 1; count <= kTilePairs; ++count) {
        const auto dim = static_cast<std::int64_t>(1 + random.next_below(20));
        const FloatMatrix vectors = random_matrix(9, dim, random);
        const KeyTile keys{4, 9, dim, vectors.data.data()};
        const FloatMatrix scores = random_matrix(9 + kFewColumnsPadding, 19, random);
        FloatMatrix variances = random_matrix(dim, 19 + kFewColumnsPadding, random);
        for (float& x : variances.data) x *= x;
        std::vector<KeyPair> pairs(static_cast<std::size_t>(count));
        for (auto& pair : pairs)
          pair = {4 + static_cast<std::int64_t>(random.next_below(9)),
                  4 + static_cast<std::int64_t>(random.next_below(9))};
        std::vector<float> found(static_cast<std::size_t>(count * columns + kFewColumnsPadding),
                                 -1);
        auto expected = found;
        compute_z_scores({keys, scores, variances}, pairs, 1, columns, found.data());
        compute_z_scores_reference({keys, scores, variances}, pairs, 1, columns, expected.data());
        for (std::size_t at = 0; at < static_cast<std::size_t>(count * columns); ++at)
          EXPECT_NEAR(found[at], expected[at], 1e-5F * std::fabs(expected[at]) + 1e-5F);
      }
  });
}

// Pairs that need different columns are evaluated together, at the columns of all.
TEST(ZScoreEvaluator, GivesOneLanePerPairAndCertainChoicesBehindThem) {
  Random random(5);
  const FloatMatrix vectors = random_matrix(6, 7, random);
  QueryGaussians queries{Matrix(4, 7), Matrix(4, 7), {}};
  for (double& x : queries.mean.data) x = random.uniform();
  for (double& x : queries.variance.data) x = 0.1 + random.uniform();
  std::vector<KeyPair> seen;
  ZScoreEvaluator evaluator(queries, [&](const KeyPairZScores& lines) {
    EXPECT_EQ(lines.first_column, 1);
    EXPECT_EQ(lines.columns, 3);
    EXPECT_EQ(lines.lanes % kLaneStep, 0);
    for (std::int64_t lane = 0; lane < lines.lanes; ++lane)
      for (std::int64_t c = 0; c < 3; ++c) {
        const float z = lines.z[c * lines.lanes + lane];
        if (lane >= std::ssize(lines.pairs)) {
          EXPECT_GT(z, 100);
          continue;
        }
        const KeyPair& pair = lines.pairs[static_cast<std::size_t>(lane)];
        double mean = 0;
        double variance = 0;
        for (std::int64_t j = 0; j < 7; ++j) {
          const double delta = double{vectors(pair.first, j)} - vectors(pair.second, j);
          mean += delta * queries.mean(c + 1, j);
          variance += delta * delta * queries.variance(c + 1, j);
        }
        EXPECT_NEAR(z, mean / std::sqrt(variance), 1e-5);
      }
    seen.insert(seen.end(), lines.pairs.begin(), lines.pairs.end());
  });
  evaluator.set_keys(KeyTile(vectors));
  for (std::int64_t j = 1; j < 6; ++j) {
    evaluator.set_column_range(j % 2 == 1 ? 1 : 2, j % 2 == 1 ? 3 : 4);
    for (std::int64_t i = 0; i < j; ++i) evaluator.add_pair({i, j});
    if (j == 3) evaluator.flush();
  }
  evaluator.flush();
  EXPECT_TRUE(evaluator.empty());
  EXPECT_EQ(seen.size(), 15U);
}

TEST(PlasticityHeatmap, CountsEveryPointInTheCellOfItsDistance) {
  const std::vector<double> query = {5, 7, 40, 41, 60, 99, 140};  // some at edges, one beyond
  const auto wave = waves(query.size(), 0.5);
  PlasticityHeatmap heatmap(100, 10, query);
  constexpr std::size_t kStride = 2;
  std::vector<std::uint32_t> running(kStride * (query.size() + 1));
  std::vector<double> value;
  running[0] = 0xffff'fff0;  // running sums wrap around
  for (std::size_t i = 0; i < query.size(); ++i) {
    const auto units = static_cast<std::uint32_t>(std::fabs(wave[i]) / kPlasticityUnit);
    value.push_back(units * kPlasticityUnit);
    running[kStride * (i + 1)] = running[kStride * i] + units;
  }
  std::map<std::pair<int, int>, std::pair<double, double>> expected;  // sum and weight
  for (const double weight : {1.0, 2.5}) {
    heatmap.set_pair_weight(weight);
    for (const auto& [first, second] : {std::pair{1.0, 3.0}, {0.0, 20.0}, {30.0, 50.0}})
      for (const auto& [begin, end] : {std::pair{0UL, query.size()}, {2, 5}, {3, 3}}) {
        heatmap.add_key_pair({first, second, static_cast<std::int64_t>(begin),
                              static_cast<std::int64_t>(end), running.data() + kStride * begin,
                              kStride});
        for (auto i = begin; i < end; ++i) {
          const int distance = static_cast<int>((query[i] - 0.5 * (first + second)) / 10);
          auto& cell =
              expected[{static_cast<int>((second - first) / 10), std::clamp(distance, 0, 9)}];
          cell.first += weight * value[i];
          cell.second += weight;
        }
      }
  }
  const auto found = heatmap.cells();
  ASSERT_EQ(found.size(), expected.size());
  std::size_t i = 0;
  for (const auto& [place, cell] : expected) {
    EXPECT_EQ(found[i].key_distance_low, 10 * place.first);
    EXPECT_EQ(found[i].query_distance_low, 10 * place.second);
    EXPECT_NEAR(found[i].ap, cell.first / cell.second, 1e-12);
    EXPECT_EQ(found[i].eligible, std::llround(cell.second));
    ++i;
  }
}

TEST(DistinctIntegers, AreNumberedInAscendingOrder) {
  const std::vector<std::int32_t> all = {5, -3, 5, 261, 1 << 30, -3, 5 + 256};
  const DistinctIntegers distinct(all);
  EXPECT_EQ(distinct.numbers, (std::vector<std::int32_t>{-3, 5, 261, 1 << 30}));
  EXPECT_EQ(distinct.place, (std::vector<std::int32_t>{1, 0, 1, 2, 3, 0, 2}));
}

TEST(BucketRanges, AreFoundFromTheRows) {
  const auto head = plant(small_head(1), 1);
  const BucketRanges uniform(as_rows_view(head.query_rows), as_rows_view(head.key_rows));
  EXPECT_EQ(uniform.range(3), (PositionRange{384, 512}));
  EXPECT_TRUE(uniform.window_reaches_bucket(3, 2, 128));
  EXPECT_FALSE(uniform.window_reaches_bucket(3, 1, 128));
  EXPECT_TRUE(uniform.window_reaches_bucket(3, 1, 130));
  HeadRows doubling = head.query_rows;
  for (std::size_t i = 0; i < doubling.position.size(); ++i)
    doubling.bucket[i] =
        std::max(4, static_cast<int>(std::log2(static_cast<double>(doubling.position[i]) + 1)));
  const BucketRanges log(as_rows_view(doubling), as_rows_view(doubling));
  EXPECT_EQ(log.range(4), (PositionRange{0, 31}));
  EXPECT_EQ(log.range(6), (PositionRange{63, 127}));
}

TEST(BucketRanges, AreKnownFromTheSampler) {
  SamplerOptions sampler;
  sampler.type = SamplerType::uniform;
  sampler.min_bucket_size = 100;
  EXPECT_EQ(BucketRanges(sampler).range(3), (PositionRange{300, 400}));
  EXPECT_TRUE(BucketRanges(sampler).window_reaches_bucket(3, 1, 102));
  EXPECT_FALSE(BucketRanges(sampler).window_reaches_bucket(3, 1, 101));
  sampler.type = SamplerType::log_uniform;  // no bucket is below 7
  EXPECT_EQ(BucketRanges(sampler).range(7), (PositionRange{0, 255}));
  EXPECT_EQ(BucketRanges(sampler).range(8), (PositionRange{255, 511}));
}

}  // namespace
}  // namespace qkscope
