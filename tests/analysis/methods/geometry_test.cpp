// Planted heads whose geometry is known.
#include "analysis/methods/geometry.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "base/core/numbers.h"
#include "base/numerics/random.h"
#include "planted_rows.h"

namespace qkscope {
namespace {

// Rows at every position of `texts` texts; vector(text, position) gives the vector.
template <typename Vector>
HeadRows make_rows(int dim, int texts, int length, const Vector& vector) {
  HeadRows rows;
  rows.head_dim = dim;
  for (int text = 0; text < texts; ++text)
    for (int t = 0; t < length; ++t) {
      for (const double x : vector(text, t)) rows.vectors.push_back(static_cast<float>(x));
      rows.position.push_back(t);
      rows.example_id.push_back(text);
      rows.bucket.push_back(0);
    }
  return rows;
}

CentredRows moments_of_rows(const HeadRows& rows) {
  return make_centred_rows(as_rows_view(rows));
}

GeometryResult shares_of(const HeadRows& queries, const HeadRows& keys,
                         GeometryOptions options = {}, const RotaryEmbedding& rope = {}) {
  const RowsView q = as_rows_view(queries);
  const RowsView k = as_rows_view(keys);
  const JackknifeGroups texts(q, k);
  GeometryResult result;
  add_score_columns({q, k, texts, 0}, &rope, options, 1, result);
  return result;
}

TEST(Ranks, OfEqualEigenvaluesIsTheirNumber) {
  for (const std::size_t r : {1, 5, 20}) {
    std::vector<double> eigenvalues(64);
    std::fill_n(eigenvalues.begin(), r, 3.0);
    std::fill(eigenvalues.begin() + static_cast<long>(r), eigenvalues.end(), 1e-14);  // rounding
    const auto ranks = effective_ranks(eigenvalues);
    const auto rank = static_cast<double>(r);
    EXPECT_NEAR(ranks.participation, rank, 1e-12);
    EXPECT_NEAR(ranks.entropy, rank, 1e-12);
    EXPECT_EQ(ranks.rank_90, std::ceil(0.9 * rank));
    EXPECT_NEAR(ranks.entropy_top, std::log(std::min(16.0, rank)) / std::log(16.0), 1e-12);
  }
  EXPECT_TRUE(std::isnan(effective_ranks({0, 0}).entropy));
}

TEST(Ranks, OfAPlantedGaussianIsItsNumberOfDirections) {
  constexpr int kDim = 24, kRank = 6;
  Random random(5);
  PlantedOptions planted;
  planted.dim = kDim;
  const Matrix basis = generate_planted_basis(planted);
  const auto rows = make_rows(kDim, 1, 40000, [&](int, int) {
    std::vector<double> x(kDim, 10.0);  // the mean does not count
    for (int i = 0; i < kRank; ++i) add_scaled(random.normal(), {basis.row(i), as_index(kDim)}, x);
    return x;
  });
  GeometryResult result;
  add_rank_columns("q_pre", covariance_ranks(moments_of_rows(rows)), result);
  // Sample eigenvalues spread by about sqrt(2 / n) = 0.7 %; the participation loses r / n.
  EXPECT_NEAR(result.value("rank_participation_q_pre"), kRank, 0.01);
  EXPECT_NEAR(result.value("rank_entropy_q_pre"), kRank, 0.01);
  EXPECT_NEAR(result.value("rank_entropy_share_q_pre"), 1.0 * kRank / kDim, 0.001);
  EXPECT_EQ(result.value("rank_90_q_pre"), kRank);
}

TEST(Ranks, SpectrumOfAProductHasTheTraceOfTheProduct) {
  Random random(1);
  const auto rows = [&] {
    return make_rows(12, 1, 300, [&](int, int) {
      std::vector<double> x(12);
      random.fill_normal(x);
      x[3] += 2 * x[5] + 1;
      return x;
    });
  };
  const Matrix a = second_moment(moments_of_rows(rows()));
  const Matrix b = second_moment(moments_of_rows(rows()));
  const auto spectrum = product_spectrum(a, b);
  EXPECT_NEAR(sum(spectrum), dot(a.data, b.data), 1e-12 * dot(a.data, b.data));
  EXPECT_GE(spectrum.back(), -1e-12 * spectrum.front());
}

// Queries and keys have content in one rotary pair alone.
TEST(Frequencies, AHeadOfOneFrequencyUsesItAlone) {
  constexpr int kPairs = 8, kUsed = 6;
  RotaryEmbedding rope;
  for (int p = 0; p < kPairs; ++p) rope.inv_freq.push_back(std::pow(10.0, -0.5 * p));
  Random random(2);
  const auto side = [&](double real, double imaginary) {
    return make_rows(2 * kPairs, 1, 500, [&, real, imaginary](int, int) {
      std::vector<double> x(2 * kPairs);
      x[kUsed] = real + 0.1 * random.normal();
      x[kUsed + kPairs] = imaginary + 0.1 * random.normal();
      return x;
    });
  };
  const double turn = 40 * rope.inv_freq[kUsed];  // the key leads by 40 tokens
  const auto queries = moments_of_rows(side(1, 0));
  const auto keys = moments_of_rows(side(std::cos(turn), std::sin(turn)));
  const std::vector<double> lengths(kPairs, 1.0);
  GeometryResult result;
  add_frequency_columns({queries, lengths}, {keys, lengths}, rope, result);
  ASSERT_EQ(result.pairs.size(), as_index(kPairs));
  for (int p = 0; p < kPairs; ++p)
    EXPECT_NEAR(result.pairs[as_index(p)].frequency_use, p == kUsed ? 1 : 0, 1e-9);
  EXPECT_NEAR(result.value("frequency_use_entropy"), 0, 1e-9);
  EXPECT_NEAR(result.value("frequency_use_slow"), 1,
              1e-9);  // pairs 6 and 7 are the slowest quarter
  EXPECT_NEAR(result.value("concentration_q"), 1.0 / kPairs, 0.01);
  const auto score = mean_score_by_distance(queries, keys, rope, 0.5, 100);
  for (const std::int64_t distance : {0, 1, 17, 99})  // the plain sum of the definition
    EXPECT_NEAR(score[as_index(distance)],
                0.5 * std::cos((static_cast<double>(distance) - 40) * rope.inv_freq[kUsed]), 0.02);
  add_distance_preference_columns(score, {}, result);
  EXPECT_NEAR(result.value("distance_preference"), 40, 10);  // noise of the means turns the peak
}

TEST(Decay, OfAPlantedPowerLawIsItsExponent) {
  for (const double gamma : {0.5, 1.0, 2.0}) {
    std::vector<DistanceBin> bins;
    constexpr std::int64_t kLength = 4096;
    for (std::int64_t low = 1; low < kLength; low *= 2) {
      DistanceBin bin{.low = low, .high = 2 * low};
      for (auto d = low; d < 2 * low; ++d) {
        bin.pairs.push_back(static_cast<double>(kLength - d));
        bin.mass += bin.pairs.back() * std::pow(static_cast<double>(d), -gamma);
      }
      bin.queries = bin.pairs.front();
      bins.push_back(std::move(bin));
    }
    GeometryResult result;
    add_attention_decay_columns(bins, kLength, result);
    // The mean over a bin of a power is not the power of the mean logarithm.
    EXPECT_NEAR(result.value("decay_exponent"), -gamma, 0.01 * gamma);
    EXPECT_GT(result.value("decay_r2"), 0.9999);
  }
}

TEST(ScoreShares, DistanceExplainsScoresThatDependOnDistanceAlone) {
  // q.k = cos((t_q - t_k) / 300): smooth enough for the bins.
  const auto rows = make_rows(2, 8, 128, [](int, int t) {
    return std::vector<double>{std::cos(t / 300.0), std::sin(t / 300.0)};
  });
  const auto result = shares_of(rows, rows);
  EXPECT_NEAR(result.value("distance_share"), 1, 0.02);
  EXPECT_LT(std::fabs(result.value("distance_share_null")), 0.02);
}

// With contents that do not depend on position, and no RoPE, scores follow contents alone.
TEST(ScoreShares, DistanceExplainsNothingOfScoresThatDependOnContentAlone) {
  Random random(7);
  const auto rows = [&](double mean) {
    return make_rows(6, 16, 96, [&, mean](int, int) {
      std::vector<double> x(6);
      random.fill_normal(x);
      for (double& value : x) value += mean;
      return x;
    });
  };
  const auto keys = rows(0);
  const auto result = shares_of(rows(0), keys);
  EXPECT_NEAR(result.value("distance_share"), 0, 0.02);
  EXPECT_NEAR(result.value("key_share"), 0, 0.05);
  EXPECT_NEAR(result.value("symbolic_score"), 1, 1e-9);
  EXPECT_NEAR(result.value("positional_score"), 0, 0.15);
  // A constant query makes the score a function of the key alone.
  const auto constant =
      make_rows(6, 16, 96, [](int, int) { return std::vector<double>{1, 2, 0, 0, 1, 1}; });
  EXPECT_NEAR(shares_of(constant, keys).value("key_share"), 1, 1e-9);
  EXPECT_NEAR(shares_of(keys, constant).value("query_share"), 1, 1e-9);
}

// Contents are constant, so that after RoPE the score follows the distance alone.
TEST(SwapScores, ConstantContentsArePositional) {
  RotaryEmbedding rope;
  rope.inv_freq = {0.3, 0.02};
  const auto rows = make_rows(4, 12, 64, [&](int, int t) {
    std::vector<double> x = {1, 0.5, 0, 1};
    const std::span<double> vectors[] = {x};
    undo_rope(rope, -t, vectors);
    return x;
  });
  const auto result = shares_of(rows, rows, {}, rope);
  EXPECT_NEAR(result.value("positional_score"), 1, 1e-5);  // rows are float32
  EXPECT_NEAR(result.value("symbolic_score"), 0, 0.15);
}

TEST(RotaryEmbedding, PairsMayBeginWithinTheVector) {
  for (const bool interleaved : {false, true}) {
    const RotaryEmbedding whole{{0.3, 0.02}, interleaved};
    RotaryEmbedding last = whole;
    last.begin = 3;
    std::vector<double> x = {9, 8, 7, 1, 0.5, 0, 1};
    std::vector<double> y(x.begin() + 3, x.end());
    const std::span<double> vectors[] = {x};
    const std::span<double> parts[] = {y};
    undo_rope(last, 11, vectors);
    undo_rope(whole, 11, parts);
    y.insert(y.begin(), {9, 8, 7});
    EXPECT_EQ(x, y);
  }
}

TEST(ScoreShares, DoNotDependOnTheOrderOfRows) {
  auto options = small_head(3);
  const auto head = plant(options, 1);
  GeometryOptions few;
  few.score_pairs = 300;
  const auto once = shares_of(head.query_rows, head.key_rows, few);
  const auto again = shares_of(shuffled(head.query_rows, 5), shuffled(head.key_rows, 6), few);
  ASSERT_FALSE(std::isnan(once.value("distance_share")));
  for (const auto& [column, value] : once.columns)
    EXPECT_DOUBLE_EQ(value.value, again.value(column)) << column;
}

TEST(ScoreShares, ErrorsCoverTheSpreadOverDraws) {
  auto options = small_head(4);
  std::vector<double> values;
  double error = 0;
  for (std::uint64_t draw = 0; draw < 30; ++draw) {
    const auto head = plant(options, draw);
    const auto found = shares_of(head.query_rows, head.key_rows).columns.at("key_share");
    values.push_back(found.value);
    error += found.se / 30;
  }
  double mean = 0, square = 0;
  for (const double value : values) mean += value / 30;
  for (const double value : values) square += (value - mean) * (value - mean) / 29;
  // 30 draws give a standard deviation to 13 %.
  EXPECT_GT(error, 0.6 * std::sqrt(square));
  EXPECT_LT(error, 1.8 * std::sqrt(square));
}

}  // namespace
}  // namespace qkscope
