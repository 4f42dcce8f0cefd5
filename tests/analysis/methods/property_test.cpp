// What must hold for every head, whatever is in it.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "analysis/methods/kernels/query_model.h"
#include "analysis/methods/pca.h"
#include "analysis/methods/plasticity.h"
#include "analysis/methods/rotation.h"
#include "base/numerics/random.h"
#include "planted_rows.h"

namespace qkscope {
namespace {

HeadRows negated(HeadRows rows) {
  for (float& x : rows.vectors) x = -x;
  return rows;
}

TEST(Properties, ExplainedVarianceSumsToOne) {
  const auto head = plant(small_head(1), 1);
  const auto pca = combined_pca(head.queries, head.keys, head.pooled, {});
  EXPECT_NEAR(std::accumulate(pca.explained_variance.begin(), pca.explained_variance.end(), 0.0), 1,
              1e-12);
  EXPECT_EQ(pca.components.size(), 8u);
  for (const auto& component : pca.components) {
    EXPECT_NEAR(norm(component.direction), 1, 1e-12);
    EXPECT_GE(std::fabs(component.q.r) >= 0.05 ? component.q.r : component.k.r, 0);
  }
}

TEST(Properties, RotationsKeepEveryDotProduct) {
  const auto head = plant(small_head(2), 2);
  const auto model = fit_query_model(head.queries, key_mean_signs(head.keys));
  const auto rotation = analyze_planar_rotation(head.queries, head.keys, head.pooled, {});
  const auto complement = orthogonal_complement(head.pooled, rotation.a, rotation.b, 6);
  Random random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> q(8);
    std::vector<double> k(8);
    for (double& x : q) x = random.normal();
    for (double& x : k) x = random.normal();
    EXPECT_NEAR(dot(to_model_basis(q, model), to_model_basis(k, model)), dot(q, k), 1e-12);
    // (a, b, complement) is an orthonormal basis as well.
    double sum = dot(q, rotation.a) * dot(k, rotation.a) + dot(q, rotation.b) * dot(k, rotation.b);
    for (std::int64_t i = 0; i < complement.axes.rows; ++i) {
      const std::span<const double> axis(complement.axes.row(i), 8);
      sum += dot(q, axis) * dot(k, axis);
    }
    EXPECT_NEAR(sum, dot(q, k), 1e-12);
  }
}

TEST(Properties, NothingOrthogonalToTheDriftCorrelatesWithPosition) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto options = small_head(seed);
    options.noise = seed % 2 == 0 ? 1 : 1e-3;
    const auto head = plant(options, seed);
    EXPECT_LT(analyze_planar_rotation(head.queries, head.keys, head.pooled, {}).residual_pos_r,
              1e-9);
  }
}

TEST(Properties, BiasStrengthIsTheSameWhenEverythingIsFlipped) {
  const auto options = small_head(3);
  const auto head = plant(options, 3);
  const PlantedHead flipped(negated(head.query_rows), negated(head.key_rows));
  const auto before = analyze_planar_rotation(head.queries, head.keys, head.pooled, {});
  const auto after = analyze_planar_rotation(flipped.queries, flipped.keys, flipped.pooled, {});
  EXPECT_NEAR(after.bias_strength, before.bias_strength, 1e-12 * std::fabs(before.bias_strength));
  EXPECT_NEAR(after.alpha_k, before.alpha_k, 1e-12 * std::fabs(before.alpha_k));
  EXPECT_NEAR(dot(before.a, after.a), -1, 1e-12);
}

TEST(Properties, PlasticityLiesBetweenZeroAndOne) {
  for (const double noise : {1e-3, 0.3, 1.0, 30.0}) {
    auto options = small_head(4);
    options.noise = noise;
    const auto head = plant(options, 4);
    const auto result = attention_plasticity(head.queries, head.keys, {});
    for (const auto& cell : result.table) {
      if (cell.mean.pairs == 0) continue;
      EXPECT_GE(cell.mean.ap, 0);
      EXPECT_LE(cell.mean.ap, 1);
    }
    for (const auto& point : result.profile) {
      if (point.mean.pairs == 0) continue;
      EXPECT_GE(point.mean.ap, 0);
      EXPECT_LE(point.mean.ap, 1);
    }
    EXPECT_NEAR(
        std::accumulate(result.component_weight.begin(), result.component_weight.end(), 0.0), 1,
        1e-12);
  }
}

TEST(Properties, QueriesThatIgnorePositionHaveAFlatProfile) {
  auto options = small_head(5);
  options.examples = 400;
  options.drift_q = options.drift_k = 0;
  const auto head = plant(options, 5);
  PlasticityOptions buckets;
  buckets.profile_bins = PlasticityOptions::kBuckets;
  const auto result = attention_plasticity(head.queries, head.keys, buckets);
  ASSERT_EQ(result.profile.size(), 8u);
  // Every bucket within five standard errors of the mean of all. The bucket's own queries (about
  // `examples` of them) decide its mean, which adds to the error over key pairs.
  for (const auto& point : result.profile) {
    if (point.mean.pairs == 0) continue;
    EXPECT_NEAR(point.mean.ap, result.ap_profile_overall, 5 * point.mean.stderr_ap + 0.02);
  }
  PlasticityOptions linear;
  linear.profile_model = PlasticityOptions::QueryModelKind::linear;
  const auto flat = attention_plasticity(head.queries, head.keys, linear);
  EXPECT_NEAR(flat.ap_drop, 0, 0.02);
}

TEST(Properties, RowOrderDoesNotMatter) {
  auto options = small_head(6);
  options.planes = {{0.3, 4}};
  const auto head = plant(options, 6);
  const PlantedHead mixed(shuffled(head.query_rows, 1), shuffled(head.key_rows, 2));
  // Only the order of additions changes.
  const auto pca = combined_pca(head.queries, head.keys, head.pooled, {});
  const auto pca2 = combined_pca(mixed.queries, mixed.keys, mixed.pooled, {});
  for (std::size_t i = 0; i < pca.components.size(); ++i) {
    EXPECT_NEAR(pca.components[i].q.r, pca2.components[i].q.r, 1e-10);
    EXPECT_NEAR(pca.components[i].explained_variance, pca2.components[i].explained_variance, 1e-12);
  }
  const auto rotation = analyze_planar_rotation(head.queries, head.keys, head.pooled, {});
  const auto rotation2 = analyze_planar_rotation(mixed.queries, mixed.keys, mixed.pooled, {});
  EXPECT_NEAR(rotation.bias_strength, rotation2.bias_strength, 1e-12);
  EXPECT_NEAR(rotation.omega_r_squared, rotation2.omega_r_squared, 1e-10);
  for (std::size_t i = 0; i < rotation.complement.size(); ++i)
    EXPECT_NEAR(rotation.complement[i].angle_r, rotation2.complement[i].angle_r, 1e-9);
  const auto plasticity = attention_plasticity(head.queries, head.keys, {});
  const auto plasticity2 = attention_plasticity(mixed.queries, mixed.keys, {});
  EXPECT_NEAR(plasticity.ap_overall, plasticity2.ap_overall, 1e-11);
  EXPECT_NEAR(plasticity.ap_profile_overall, plasticity2.ap_profile_overall, 1e-11);
  EXPECT_NEAR(plasticity.normality.median_ks_p, plasticity2.normality.median_ks_p, 1e-9);
  ASSERT_EQ(plasticity.heatmap.size(), plasticity2.heatmap.size());
}

TEST(Properties, EqualKeysAreACoinFlip) {
  auto options = small_head(7);
  options.examples = 3;
  auto head = plant(options, 7);
  // Every key the same vector: no query can prefer one.
  for (std::size_t i = 8; i < head.key_rows.vectors.size(); ++i)
    head.key_rows.vectors[i] = head.key_rows.vectors[i % 8];
  const auto keys = make_centred_rows(as_rows_view(head.key_rows));
  const auto result = attention_plasticity(head.queries, keys, {});
  for (const auto& point : result.profile) {
    if (point.mean.pairs == 0) continue;
    EXPECT_EQ(point.mean.ap, 1);
  }
}

TEST(Properties, ASampleOfPairsAgreesWithAllOfThem) {
  auto options = small_head(8);
  options.rows_per_bucket = 4;
  const auto head = plant(options, 8);
  const auto exact = attention_plasticity(head.queries, head.keys, {});
  PlasticityOptions few;
  few.max_pairs = 2000;
  few.seed = 3;
  const auto sampled = attention_plasticity(head.queries, head.keys, few);
  const auto again = attention_plasticity(head.queries, head.keys, few);
  int cells = 0;
  for (std::size_t i = 0; i < exact.profile.size(); ++i) {
    const auto& all = exact.profile[i].mean;
    const auto& some = sampled.profile[i].mean;
    EXPECT_EQ(some.eligible, all.pairs);
    EXPECT_EQ(all.eligible, all.pairs);
    if (all.pairs <= 2000) continue;
    ++cells;
    EXPECT_NEAR(static_cast<double>(some.pairs), 2000, 1);
    EXPECT_NEAR(some.ap, all.ap, 5 * some.stderr_ap);
    EXPECT_EQ(again.profile[i].mean.ap, some.ap);
  }
  EXPECT_GT(cells, 3);
}

TEST(Properties, SampledPairsWeighWhatTheyStandForInTheHeatmap) {
  auto options = small_head(8);
  options.rows_per_bucket = 4;
  const auto head = plant(options, 8);
  PlasticityOptions few;
  few.heatmap_bins = 1;  // one cell holds every column, whole ones and sampled ones
  few.max_pairs = 500;
  const auto result = attention_plasticity(head.queries, head.keys, few);
  double sum = 0;
  double eligible = 0;
  int sampled = 0;
  for (const auto& point : result.profile) {
    if (point.mean.pairs == 0) continue;
    sum += point.mean.ap * static_cast<double>(point.mean.eligible);
    eligible += static_cast<double>(point.mean.eligible);
    sampled += point.mean.eligible > few.max_pairs ? 1 : 0;
  }
  EXPECT_GT(sampled, 0);
  ASSERT_EQ(result.heatmap.size(), 1u);
  // A sample may have one pair more or less than was asked for.
  EXPECT_NEAR(result.heatmap[0].ap, sum / eligible, 1e-4);
}

TEST(Properties, DegenerateHeadsGiveDefinedResults) {
  auto options = small_head(9);
  options.examples = 2;
  auto head = plant(options, 9);
  for (auto* rows : {&head.query_rows, &head.key_rows})
    std::fill(rows->position.begin(), rows->position.end(), 5);
  const PlantedHead constant(head.query_rows, head.key_rows);
  const auto pca = combined_pca(constant.queries, constant.keys, constant.pooled, {});
  EXPECT_TRUE(std::isnan(pca.components[0].q.r));
  EXPECT_EQ(classify(pca.components[0].q.r, pca.components[0].k.r, {}), HeadClass::undefined);
  EXPECT_EQ(analyze_planar_rotation(constant.queries, constant.keys, constant.pooled, {}).undefined,
            "constant_position");
  EXPECT_TRUE(std::isnan(attention_plasticity(constant.queries, constant.keys, {}).r2_scalar));
  // One row of each.
  const auto one = [](HeadRows rows) {
    rows.position.resize(1);
    rows.example_id.resize(1);
    rows.bucket.resize(1);
    rows.vectors.resize(8);
    return rows;
  };
  const PlantedHead single(one(head.query_rows), one(head.key_rows));
  EXPECT_TRUE(
      std::isnan(combined_pca(single.queries, single.keys, single.pooled, {}).components[0].q.r));
  EXPECT_FALSE(
      analyze_planar_rotation(single.queries, single.keys, single.pooled, {}).undefined.empty());
  EXPECT_TRUE(std::isnan(attention_plasticity(single.queries, single.keys, {}).ap_overall));
}

}  // namespace
}  // namespace qkscope
