// Heads without a group of texts.
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "analysis/methods/moments.h"
#include "analysis/methods/pca.h"
#include "analysis/methods/rotation.h"
#include "base/numerics/products.h"
#include "planted_rows.h"

namespace qkscope {
namespace {

// The numbers of a head as an analysis gives them, and its replicates.
HeadReport analysed(const PlantedHead& head, const AnalyzeOptions& options) {
  HeadReport report;
  report.pca = combined_pca(head.queries, head.keys, head.pooled, options.pca_options);
  report.rotation =
      analyze_planar_rotation(head.queries, head.keys, head.pooled, options.rotation_options);
  return report;
}

class ReplicatesBySeparation : public testing::TestWithParam<RotationOptions::Separation> {};

// Subtracting a group's moments gives what its absence gives.
TEST_P(ReplicatesBySeparation, AreTheHeadWithoutTheGroup) {
  const auto head = plant(small_head(21), 21);
  AnalyzeOptions options;
  options.rotation_options.null_draws = 0;
  options.rotation_options.separation = GetParam();
  const JackknifeGroups texts(head.queries.source, head.keys.source);
  ASSERT_EQ(texts.size(), 20);
  const auto queries = make_grouped_rows(head.queries.source, texts);
  const auto keys = make_grouped_rows(head.keys.source, texts);
  const auto found =
      jackknife_replicates(analysed(head, options), leave_one_group_out_moments(queries),
                           leave_one_group_out_moments(keys), options);
  ASSERT_EQ(found.size(), 20u);
  for (int group = 0; group < 20; ++group) {
    const PlantedHead rest(rows_without(head.query_rows, texts, group),
                           rows_without(head.key_rows, texts, group));
    const auto expected = analysed(rest, options);
    const auto& replicate = found[static_cast<std::size_t>(group)];
    const auto& component = expected.pca->components.front();
    // The first component is found to 1e-10; everything else differs by rounding.
    EXPECT_NEAR(replicate.pca->components.front().q.r, component.q.r, 1e-8);
    EXPECT_NEAR(replicate.pca->components.front().k.r, component.k.r, 1e-8);
    EXPECT_NEAR(replicate.pca->components.front().explained_variance, component.explained_variance,
                1e-12);
    EXPECT_NEAR(replicate.pca->fisher, expected.pca->fisher, 1e-7 * expected.pca->fisher);
    const auto& r = *replicate.rotation;
    const auto& e = *expected.rotation;
    for (const auto member :
         {&RotationResult::position_r, &RotationResult::r_q_a, &RotationResult::r_k_a,
          &RotationResult::alpha_q, &RotationResult::alpha_k, &RotationResult::mu_q_a,
          &RotationResult::bias_strength})
      EXPECT_NEAR(r.*member, e.*member, 1e-11);
    for (const auto member : {&RotationResult::mu_q_b, &RotationResult::separation_strength,
                              &RotationResult::var_frac_b, &RotationResult::content_var_b})
      EXPECT_NEAR(r.*member, e.*member, 1e-8);
  }
}

constexpr std::array kSeparationNames = {"mean", "eigen", "eigen_then_project"};
INSTANTIATE_TEST_SUITE_P(All, ReplicatesBySeparation,
                         testing::Values(RotationOptions::Separation::mean,
                                         RotationOptions::Separation::eigen,
                                         RotationOptions::Separation::eigen_then_project),
                         [](const auto& separation) { return kSeparationNames[separation.index]; });

TEST(Replicates, OfAHeadWithAllItsRowsInOneGroupDoNotExist) {
  auto options = small_head(22);
  options.examples = 2;
  const auto head = plant(options, 22);
  const auto texts =
      JackknifeGroups::from_texts({0, 7, 8, 9});  // both of the head's are in the first
  const auto queries = make_grouped_rows(head.queries.source, texts);
  const auto keys = make_grouped_rows(head.keys.source, texts);
  AnalyzeOptions analyze;
  analyze.rotation_options.null_draws = 0;
  const auto found =
      jackknife_replicates(analysed(head, analyze), leave_one_group_out_moments(queries),
                           leave_one_group_out_moments(keys), analyze);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_FALSE(found[0].pca || found[0].rotation);
  EXPECT_NEAR(found[1].rotation->alpha_k, analysed(head, analyze).rotation->alpha_k, 1e-15);
}

TEST(Replicates, HoldTheDiscriminantAndTheActivePlanesFixed) {
  auto options = small_head(23);
  options.planes = {{0.3, 6}};
  const auto head = plant(options, 23);
  const JackknifeGroups texts(head.queries.source, head.keys.source);
  AnalyzeOptions analyze;
  analyze.rotation_options.null_draws = 0;
  HeadReport report = analysed(head, analyze);
  report.pca = combined_pca(head.queries, head.keys, head.pooled, analyze.pca_options, &texts);
  ASSERT_EQ(report.rotation->active_axes.size(), 2u * 8u);
  const auto found = jackknife_replicates(
      report, leave_one_group_out_moments(make_grouped_rows(head.queries.source, texts)),
      leave_one_group_out_moments(make_grouped_rows(head.keys.source, texts)), analyze);
  std::int64_t rows = 0;
  std::int64_t right = 0;
  for (std::size_t g = 0; g < report.pca->qk_rows.size(); ++g) {
    rows += report.pca->qk_rows[g];
    right += report.pca->qk_right[g];
  }
  EXPECT_EQ(rows, head.pooled.count);
  EXPECT_DOUBLE_EQ(report.pca->qk_accuracy, static_cast<double>(right) / static_cast<double>(rows));
  for (int group = 0; group < texts.size(); ++group) {
    const auto at = static_cast<std::size_t>(group);
    EXPECT_DOUBLE_EQ(found[at].pca->qk_accuracy,
                     static_cast<double>(right - report.pca->qk_right[at]) /
                         static_cast<double>(rows - report.pca->qk_rows[at]));
    const PlantedHead rest(rows_without(head.query_rows, texts, group),
                           rows_without(head.key_rows, texts, group));
    double active = 0;
    for (const std::size_t axis : {0, 1})
      active += quadratic_form(rest.pooled.scatter,
                               std::span(report.rotation->active_axes).subspan(8 * axis, 8));
    const auto& r = *found[at].rotation;
    EXPECT_NEAR(r.active_variance_total, active / trace(rest.pooled.scatter), 1e-12);
    EXPECT_NEAR(r.active_variance, r.active_variance_total / (1 - r.plane_var_fraction), 1e-12);
  }
}

TEST(JackknifeGroups, AreEqualInTheOrderOfTheTexts) {
  std::vector<std::int64_t> texts;
  for (std::int64_t i = 0; i < 50; ++i) texts.push_back(1000 - 7 * i);
  const auto groups = JackknifeGroups::from_texts(texts);
  ASSERT_EQ(groups.size(), 20);
  for (std::int64_t i = 0; i < 50; ++i)
    EXPECT_EQ(groups.group_of(1000 - 7 * (49 - i)), i * 20 / 50);
  EXPECT_EQ(groups.group_of(-5), 0);
  EXPECT_EQ(groups.group_of(5000), 19);
  EXPECT_EQ(JackknifeGroups::from_texts({5, 5, 3}).size(), 2);
}

}  // namespace
}  // namespace qkscope
