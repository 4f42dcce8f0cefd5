// What is computed from moments alone against the same from rows.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "analysis/methods/kernels/query_model.h"
#include "analysis/methods/pca.h"
#include "analysis/methods/plasticity.h"
#include "analysis/methods/rotation.h"
#include "planted_rows.h"

namespace qkscope {
namespace {

TEST(FromMoments, ThePcaHasEverythingButTheDiscriminant) {
  const auto head = plant(small_head(3), 3);
  const auto rows = combined_pca(head.queries, head.keys, head.pooled, {});
  const auto moments = pca_from_moments(head.queries, head.keys, head.pooled, {});
  ASSERT_EQ(moments.components.size(), rows.components.size());
  for (std::size_t i = 0; i < rows.components.size(); ++i) {
    EXPECT_EQ(moments.components[i].q.r, rows.components[i].q.r);
    EXPECT_EQ(moments.components[i].k.log10_p, rows.components[i].k.log10_p);
  }
  EXPECT_EQ(moments.fisher, rows.fisher);
  EXPECT_EQ(moments.positional_variance_q, rows.positional_variance_q);
  EXPECT_TRUE(std::isnan(moments.qk_accuracy));
  EXPECT_FALSE(std::isnan(rows.qk_accuracy));
}

TEST(FromMoments, TheRotationHasEverythingButFrequenciesAndTheNull) {
  const auto head = plant(small_head(4), 4);
  for (const auto how : {RotationOptions::Separation::mean, RotationOptions::Separation::eigen}) {
    RotationOptions options;
    options.separation = how;
    const auto rows = analyze_planar_rotation(head.queries, head.keys, head.pooled, options);
    const auto moments = rotation_from_moments(head.queries, head.keys, head.pooled, options);
    EXPECT_EQ(moments.a, rows.a);
    EXPECT_EQ(moments.b, rows.b);
    EXPECT_EQ(moments.c0, rows.c0);
    EXPECT_EQ(moments.bias_strength, rows.bias_strength);
    EXPECT_EQ(moments.residual_pos_r, rows.residual_pos_r);
    EXPECT_TRUE(std::isnan(moments.omega));
    EXPECT_TRUE(std::isnan(moments.null.position_r));
    EXPECT_TRUE(std::isnan(moments.active_variance));
    ASSERT_EQ(moments.complement.size(), rows.complement.size());
    for (std::size_t i = 0; i < rows.complement.size(); ++i) {
      const auto& pair = moments.complement[i];
      EXPECT_EQ(pair.variance_share, rows.complement[i].variance_share);
      EXPECT_TRUE(std::isnan(pair.angle_r));
      if (how == RotationOptions::Separation::mean)
        EXPECT_EQ(pair.separability, 0.5);
      else
        EXPECT_TRUE(std::isnan(pair.separability));
      EXPECT_FALSE(std::isnan(rows.complement[i].separability));
    }
  }
}

// Sums of the queries that a model takes, from the rows.
struct QuerySums {
  LogPositionMoments log_positions;
  std::vector<QueryBucketMoments> buckets;
};

QuerySums sums_of(const CentredRows& queries) {
  QuerySums sums;
  const auto dim = static_cast<std::size_t>(queries.dim());
  const auto n = static_cast<double>(queries.count);
  std::vector<double> u;
  double mean = 0;
  for (const auto t : queries.source.position) {
    u.push_back(std::log2(t + 1.0));
    mean += u.back() / n;
  }
  sums.log_positions.cross_scatter.resize(dim);
  std::map<std::int32_t, std::vector<std::size_t>> members;
  for (std::size_t i = 0; i < u.size(); ++i) {
    members[queries.source.bucket[i]].push_back(i);
    sums.log_positions.scatter += (u[i] - mean) * (u[i] - mean);
    sums.log_positions.mean_deviation += std::fabs(u[i] - mean) / n;
    for (std::size_t j = 0; j < dim; ++j)
      sums.log_positions.cross_scatter[j] +=
          (queries.source.vectors[i * dim + j] - queries.mean[j]) * (u[i] - mean);
  }
  for (const auto& [number, rows] : members) {
    QueryBucketMoments bucket{number, std::ssize(rows), 0, std::vector<double>(dim),
                              Matrix(queries.dim(), queries.dim())};
    const auto count = static_cast<double>(rows.size());
    for (const auto i : rows) {
      bucket.position += queries.source.position[i] / count;
      for (std::size_t j = 0; j < dim; ++j)
        bucket.mean[j] += queries.source.vectors[i * dim + j] / count;
    }
    for (const auto i : rows)
      for (std::size_t j = 0; j < dim; ++j)
        for (std::size_t k = 0; k < dim; ++k)
          bucket.scatter.data[j * dim + k] +=
              (queries.source.vectors[i * dim + j] - bucket.mean[j]) *
              (queries.source.vectors[i * dim + k] - bucket.mean[k]);
    sums.buckets.push_back(std::move(bucket));
  }
  return sums;
}

TEST(FromMoments, TheQueryModelIsThatOfTheRows) {
  const auto head = plant(small_head(5), 5);
  const auto rows = fit_query_model(head.queries, key_mean_signs(head.keys));
  const auto sums = sums_of(head.queries);
  const auto model =
      fit_query_model_from_moments(head.queries, sums.log_positions, rows.sign, sums.buckets);
  EXPECT_EQ(model.beta_norm, rows.beta_norm);
  EXPECT_EQ(model.alpha, rows.alpha);
  EXPECT_NEAR(model.scalar_r_squared, rows.scalar_r_squared, 1e-12);
  EXPECT_NEAR(model.mae_baseline, rows.mae_baseline, 1e-12);
  EXPECT_TRUE(std::isnan(model.mae_projection));
  ASSERT_EQ(model.buckets.size(), rows.buckets.size());
  for (std::size_t j = 0; j < rows.residual_variance.size(); ++j)
    EXPECT_NEAR(model.residual_variance[j], rows.residual_variance[j], 1e-12);
  for (std::size_t b = 0; b < rows.buckets.size(); ++b) {
    EXPECT_EQ(model.buckets[b].count, rows.buckets[b].count);
    for (std::size_t j = 0; j < rows.sign.size(); ++j) {
      EXPECT_NEAR(model.buckets[b].mean[j], rows.buckets[b].mean[j], 1e-12);
      EXPECT_NEAR(model.buckets[b].variance[j], rows.buckets[b].variance[j], 1e-12);
    }
  }
}

// With keys from rows the plasticity is the same, whether the queries are rows or sums.
TEST(FromMoments, PlasticityWithKeysOfACapture) {
  const auto head = plant(small_head(6), 6);
  PlasticityOptions options;
  options.sampler = SamplerOptions{SamplerType::uniform, 1.0, 128, {}};
  options.profile_model = PlasticityOptions::QueryModelKind::bucket;
  const auto rows = attention_plasticity(head.queries, head.keys, options);
  const auto sums = sums_of(head.queries);
  std::map<std::int32_t, std::int64_t> counts;
  for (const auto t : head.queries.source.position) ++counts[t];
  std::vector<std::int32_t> position;
  std::vector<std::int32_t> bucket;
  std::vector<std::int64_t> times;
  for (const auto& [t, count] : counts) {
    position.push_back(t);
    bucket.push_back(bucket_of(*options.sampler, t));
    times.push_back(count);
  }
  const RowsView& keys = head.keys.source;
  options.text_groups =
      JackknifeGroups::from_texts({keys.example_id.begin(), keys.example_id.end()})
          .first_text_of_each_group();
  const auto model = fit_query_model_from_moments(
      head.queries, sums.log_positions,
      fit_query_model(head.queries, key_mean_signs(head.keys)).sign, sums.buckets);
  const auto found = plasticity_of_queries_and_keys(
      {model, RowsView{8, {}, position, {}, bucket, {}}, times, head.queries.count}, head.keys,
      options);
  EXPECT_NEAR(found.ap_overall, rows.ap_overall, 1e-10);
  EXPECT_NEAR(found.ap_profile_overall, rows.ap_profile_overall, 1e-10);
  EXPECT_NEAR(found.ap_drop, rows.ap_drop, 1e-10);
  EXPECT_TRUE(std::isnan(found.normality.first_skew));
  EXPECT_TRUE(std::isnan(found.ap_free_overall));
  EXPECT_FALSE(found.gaussian.has_value());
  // Between the means of buckets that drift in a line, interpolation is as good as a local fit.
  options.profile_model = PlasticityOptions::QueryModelKind::local;
  options.profile_bins = 32;
  const auto from_rows = attention_plasticity(head.queries, head.keys, options);
  const auto interpolated = plasticity_of_queries_and_keys(
      {model, RowsView{8, {}, position, {}, bucket, {}}, times, head.queries.count}, head.keys,
      options);
  ASSERT_EQ(interpolated.profile.size(), from_rows.profile.size());
  EXPECT_NEAR(interpolated.ap_profile_overall, from_rows.ap_profile_overall, 0.02);
  EXPECT_NEAR(interpolated.ap_drop, from_rows.ap_drop, 0.04);
  const auto none = plasticity_of_query_model(model, options);
  EXPECT_EQ(none.component_r2, rows.component_r2);
  EXPECT_EQ(none.r2_pos, rows.r2_pos);
  EXPECT_TRUE(none.table.empty());
  EXPECT_TRUE(std::isnan(none.ap_drop));
}

}  // namespace
}  // namespace qkscope
