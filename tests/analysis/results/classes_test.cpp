// Classes along the cross-fitted drift axis, and results split by the attention of the layers.
#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/results/head_results.h"
#include "base/io/json.h"
#include "error_message.h"
#include "qkscope/analysis.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using ::testing::HasSubstr;

class Classes : public ::testing::Test {
 protected:
  // Four query heads in two layers; drift is tokens of position per unit of noise.
  static PlantedCaptureOptions planted(double drift, double separation) {
    PlantedCaptureOptions options;
    options.layers = 2;
    options.query_heads = 2;
    options.key_heads = 1;
    options.nope_every = options.active_planes = 0;
    options.head.dim = 16;
    options.head.examples = 40;
    options.head.context = 256;
    options.head.bucket_size = 32;
    options.head.drift_q = options.head.drift_k = drift;
    options.head.separation = separation;
    return options;
  }

  AnalysisRun analyse(PlantedCaptureOptions capture, AnalyzeOptions options = {}) const {
    capture.data_root = options.data_root = root();
    write_planted_capture(capture);
    options.quiet = true;
    return analyze_capture(options);
  }

  std::string root() const { return folder_.file("capture"); }

  TemporaryFolder folder_;
};

std::vector<std::string> names_of(const AnalysisRun& run, HeadClassCriterion by) {
  std::vector<std::string> names;
  for (const auto& head : run.heads) names.push_back(to_string(classify_head(head, by, {})));
  return names;
}

// Positions have a standard deviation of 74 tokens: 1.5 units of noise along a, 10 along b.
TEST_F(Classes, AxisClassFindsPositionBehindAnOffsetOnTheFirstComponent) {
  const auto run = analyse(planted(0.02, 20));
  for (const auto& name : names_of(run, HeadClassCriterion::first_component))
    EXPECT_EQ(name, "content_focused");
  for (const auto& name : names_of(run, HeadClassCriterion::drift_axis))
    EXPECT_EQ(name, "position_dominated");
  for (const auto& head : run.heads) EXPECT_EQ(position_component(*head.pca), 1);
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_THAT(run.notes[0], HasSubstr("4 of 4 heads"));
  EXPECT_THAT(run.notes[0], HasSubstr("most often PC1 (4 heads)"));
}

TEST_F(Classes, BothClassesAgreeWherePositionIsTheFirstComponent) {
  const auto run = analyse(planted(0.05, 0.5));
  for (const auto by : {HeadClassCriterion::first_component, HeadClassCriterion::drift_axis})
    for (const auto& name : names_of(run, by)) EXPECT_EQ(name, "position_dominated");
  EXPECT_TRUE(run.notes.empty());
}

// With 5 rows (queries and keys) per dimension the in-sample correlation along a is high by chance.
TEST_F(Classes, AxisCorrelationIsNearZeroWithoutDrift) {
  auto noise = planted(0, 1);
  noise.head.mean_q_a = noise.head.mean_k_a = 0;
  noise.head.dim = 128;
  double in_sample = 0;
  double cross_fitted = 0;
  const auto run = analyse(noise);
  for (const auto& head : run.heads) {
    in_sample += head.rotation->r_q_a / 4;
    cross_fitted += head.pca->r_q_axis / 4;
    EXPECT_LT(std::fabs(head.pca->r_q_axis), 0.2);
    EXPECT_LT(std::fabs(head.pca->r_k_axis), 0.2);
  }
  EXPECT_GT(in_sample, 0.3);
  EXPECT_LT(std::fabs(cross_fitted), 0.1);
  for (const auto& name : names_of(run, HeadClassCriterion::drift_axis))
    EXPECT_EQ(name, "content_focused");
}

TEST_F(Classes, AxisClassIsUndefinedForASingleText) {
  auto single = planted(0.05, 0.5);
  single.head.examples = 1;
  single.head.rows_per_bucket = 16;
  const auto run = analyse(single);
  for (const auto& name : names_of(run, HeadClassCriterion::drift_axis)) EXPECT_EQ(name, "");
  const auto results = result_tables(run, {});
  EXPECT_EQ(results.undefined.at("taxonomy.csv").at("r_q_axis").at("single_text"), 4);
}

TEST_F(Classes, AxisClassDoesNotDependOnTheErrors) {
  AnalyzeOptions without;
  without.errors = false;
  const auto with = analyse(planted(0.02, 20));
  const auto run = analyse(planted(0.02, 20), without);
  for (std::size_t i = 0; i < run.heads.size(); ++i) {
    EXPECT_EQ(run.heads[i].pca->r_q_axis, with.heads[i].pca->r_q_axis);
    EXPECT_EQ(run.heads[i].pca->components[0].q.r, with.heads[i].pca->components[0].q.r);
  }
}

// Layer 0 slides over 64 tokens, layer 1 has full attention.
TEST_F(Classes, ResultsAreSplitByAttention) {
  auto mixed = planted(0.02, 20);
  mixed.sliding_window = 64;
  mixed.full_every = 2;
  const auto run = analyse(mixed);
  AnalyzeOptions options;
  options.data_root = root();
  options.quiet = true;
  write_results(folder_.file("results"), run, options);
  const auto summary = load_json(folder_.file("results") + "/summary.json");
  EXPECT_EQ(summary["counts"]["full"], 2);
  EXPECT_EQ(summary["counts"]["sliding"], 2);
  EXPECT_EQ(summary["taxonomy_axis"]["sliding"]["position_dominated"]["heads"], 2);
  EXPECT_EQ(summary["plasticity"]["full"]["ap_profile_overall"]["heads"], 2);
  // Profiles of full and sliding layers have no common mean.
  const auto& means = summary["profile"]["means"];
  EXPECT_TRUE(means.contains("full") && means.contains("sliding"));
  EXPECT_FALSE(means.contains("all") || means.contains("rope"));
  for (const auto& result : result_tables(run, options).tables) {
    if (result.name == "taxonomy_counts" || result.name == "errors" ||
        result.name == "correlations")
      continue;
    const auto* attention = result.table.find("attention");
    ASSERT_NE(attention, nullptr) << result.name;
    EXPECT_EQ(attention->texts.front(), "sliding:64") << result.name;
    EXPECT_EQ(attention->texts.back(), "full") << result.name;
  }
}

TEST_F(Classes, AttentionChoosesLayers) {
  auto mixed = planted(0.02, 20);
  mixed.sliding_window = 64;
  mixed.full_every = 2;
  AnalyzeOptions options;
  options.attention = AttentionKind::full;
  for (const auto& head : analyse(mixed, options).heads) EXPECT_EQ(head.query.layer, 1);
  options.attention = AttentionKind::sliding;
  const auto sliding = analyse(mixed, options);
  ASSERT_EQ(sliding.heads.size(), 2u);
  EXPECT_EQ(sliding.heads[0].window, 64);
  options.layers = {1};
  EXPECT_THAT(bad_input_message([&] { analyse(mixed, options); }),
              HasSubstr("none of the chosen layers has sliding attention"));
}

// An analysis that is added later leaves the folder as one run of both would.
TEST_F(Classes, AnalysesOfTheSameOptionsAddUpInOneFolder) {
  AnalyzeOptions options;
  options.plasticity = false;
  const auto both = analyse(planted(0.02, 20), options);
  options.data_root = root();
  options.quiet = true;
  const auto together = folder_.file("together");
  write_results(together, both, options);
  const auto apart = folder_.file("apart");
  for (const bool pca : {true, false}) {
    AnalyzeOptions one = options;
    one.pca = pca;
    one.rotation = !pca;
    write_results(apart, analyze_capture(one), one);
  }
  for (const char* name : {"qk", "rotated", "errors", "head_scatter"}) {
    const auto a = read_parquet_table_with_gaps(apart + "/" + name + ".parquet");
    const auto b = read_parquet_table_with_gaps(together + "/" + name + ".parquet");
    EXPECT_EQ(a.to_csv(), b.to_csv()) << name;
  }
  const auto a = load_json(apart + "/summary.json");
  const auto b = load_json(together + "/summary.json");
  for (const char* key : {"options", "pca", "taxonomy_axis", "rotation", "counts"})
    EXPECT_EQ(a[key], b[key]) << key;
}

}  // namespace
}  // namespace qkscope
