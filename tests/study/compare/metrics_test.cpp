// Published metrics evaluated on hand-made tables.
#include <cmath>

#include <gmock/gmock.h>

#include "study/compare/result_tables.h"
#include "study/compare/run_tables.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

class Metrics : public testing::Test {
 protected:
  void SetUp() override {
    write_made_results(folder_.path(), "m", made_heads(),
                       "r_q,all,0.7,0.01,0,1,5,2\nr_q,rope,0.7,0.5,0,1,5,2\n"
                       "abs_alpha_k,all,0,1e-4,0,1,5,2\nap_profile_overall,all,0,0.02,0,1,5,2\n"
                       "mixed,all,0.5,0.1,0,1,5,2\nshare_positive_bias,all,0.5,0.3,0,1,5,2\n"
                       "k_positional,all,0,0,0,0,5,2\nslope_ratio_median,all,0.5,0.4,0,1,5,2\n");
  }
  RecomputedValue of(const std::string& metric) {
    PublishedNumber number;
    number.metric = metric;
    return recompute_published_number(number, run_);
  }
  double value(const std::string& metric) { return of(metric).value; }
  double profile(double low, double high, bool fraction) {
    PublishedNumber number;
    number.value_kind = PublishedNumberKind::profile;
    number.bin = {low, high, fraction};
    return recompute_published_number(number, run_).value;
  }

  TemporaryFolder folder_;
  RunTables run_{{{"m", folder_.path()}}};
};

TEST_F(Metrics, MeansFollowThePublishedDefinitions) {
  EXPECT_DOUBLE_EQ(value("r_q"), 0.7);
  EXPECT_DOUBLE_EQ(value("r_k"), 0.2);
  EXPECT_DOUBLE_EQ(value("abs_r_k"), 0.4);
  EXPECT_DOUBLE_EQ(value("pc0_variance"), 0.5);
  EXPECT_DOUBLE_EQ(value("alpha_k"), 0.002);  // of sizes, as the tables print it
  EXPECT_DOUBLE_EQ(value("bias_strength"), 0.01);
  EXPECT_DOUBLE_EQ(value("abs_r_k_a"), 0.4);
  EXPECT_DOUBLE_EQ(value("ap_overall"), 0.6);  // the profile's, not that of cells
  EXPECT_DOUBLE_EQ(value("position_dominated"), 0.5);
  EXPECT_DOUBLE_EQ(value("k_positional"), 0.0);
  EXPECT_DOUBLE_EQ(value("slope_ratio_median"), 0.5);
  EXPECT_EQ(of("ap_overall").column, "mean of head_metrics ap_profile_overall");
  EXPECT_EQ(of("alpha_k").column, "mean of rotated |alpha_k|");
}

TEST_F(Metrics, SuffixesSelectOtherStatistics) {
  EXPECT_NEAR(value("r_q_std"), std::sqrt(0.02), 1e-15);
  EXPECT_NEAR(value("r_q_p25"), 0.65, 1e-15);
  EXPECT_NEAR(value("r_q_p75"), 0.75, 1e-15);
  EXPECT_DOUBLE_EQ(value("r_q_depth_0.0"), 0.8);
  EXPECT_DOUBLE_EQ(value("r_q_depth_0.9"), 0.6);  // the last layer belongs to the last tenth
  EXPECT_DOUBLE_EQ(value("r_k_a_depth_0.9"), 0.2);
  EXPECT_DOUBLE_EQ(value("mixed_heads"), 1);
  EXPECT_DOUBLE_EQ(value("query_heads"), 2);
  EXPECT_DOUBLE_EQ(value("class_mixed"), 0.5);
  EXPECT_DOUBLE_EQ(value("mean_r_q_pc1"), -0.7);
  EXPECT_DOUBLE_EQ(value("mean_explained_variance_pc1"), 0.25);
  EXPECT_DOUBLE_EQ(value("share_positive_bias"), 0.5);
  EXPECT_DOUBLE_EQ(value("heads_negative_bias"), 1);
  EXPECT_DOUBLE_EQ(value("layer_09_ap_overall"), 0.5);
  EXPECT_DOUBLE_EQ(value("omega"), -0.25);  // any column of a table of heads
  EXPECT_TRUE(std::isnan(value("r_q_depth_0.5")));
}

TEST_F(Metrics, SingleHeadsCompareByAbsoluteValue) {
  EXPECT_DOUBLE_EQ(value("head_L09H01_pc0_r_k"), 0.2);
  EXPECT_DOUBLE_EQ(value("head_L09H01_pc1_r_q"), 0.6);
  EXPECT_DOUBLE_EQ(value("head_L00H03_pc0_variance"), 0.5);
  EXPECT_DOUBLE_EQ(value("head_L00H03_omega"), 0.25);
  EXPECT_TRUE(of("head_L00H03_omega").sign_arbitrary);
  EXPECT_EQ(of("head_L00H01_omega").missing, "layer 0 head 1 was not analysed");
}

TEST_F(Metrics, StandardErrorsComeFromErrorsCsv) {
  EXPECT_DOUBLE_EQ(of("r_q").se, 0.01);
  EXPECT_DOUBLE_EQ(of("alpha_k").se, 1e-4);
  EXPECT_DOUBLE_EQ(of("ap_overall").se, 0.02);
  EXPECT_DOUBLE_EQ(of("mixed_heads").se, 0.2);
  EXPECT_DOUBLE_EQ(of("share_positive_bias").se, 0.3);
  EXPECT_DOUBLE_EQ(of("query_heads").se, 0);
  EXPECT_TRUE(std::isnan(of("k_positional").se));  // 0 with and without every text
  EXPECT_DOUBLE_EQ(of("slope_ratio_median").se, 0.4);
  for (const char* name : {"r_k", "r_q_std", "r_q_depth_0.0", "mean_r_q_pc1"})
    EXPECT_TRUE(std::isnan(of(name).se)) << name;
}

TEST_F(Metrics, UnknownMetricsHaveAReason) {
  EXPECT_EQ(of("corr_ap_drop_lbp").missing, "not computed by qkscope");
  EXPECT_THAT(of("r_Q").missing, HasSubstr("is r_q meant?"));
  EXPECT_EQ(of("mu_q_a").missing, "the results have no mu_q_a in a table rotated");
  EXPECT_EQ(of("head_L00H03_complement_pair_04").missing, "the results have no table complement");
  PublishedNumber words;
  words.metric = "content_focused";
  words.value = std::nan("");
  words.text = "under 1%";
  EXPECT_EQ(recompute_published_number(words, run_).missing,
            "no number was printed but \"under 1%\"");
}

// Nine bins with values, from 100 to 1,000 tokens: 0.59, 0.58, ... 0.51.
TEST_F(Metrics, ProfilesAverageBinsWithTheirCentreInside) {
  EXPECT_NEAR(profile(0, 300, false), 0.585, 1e-15);
  EXPECT_NEAR(profile(300, 400, false), 0.57, 1e-15);
  EXPECT_NEAR(profile(340, 400, false), 0.57, 1e-15);
  EXPECT_TRUE(std::isnan(profile(0, 100, false)));
  EXPECT_TRUE(std::isnan(profile(360, 440, false)));
  // Bin centres as fractions of the range that has values: 5.6 %, 16.7 %, ... 94.4 %.
  EXPECT_NEAR(profile(0.0, 0.2, true), 0.585, 1e-15);
  EXPECT_NEAR(profile(0.8, 1.0, true), 0.515, 1e-15);
  EXPECT_NEAR(profile(0.9, 1.0, true), 0.51, 1e-15);
  EXPECT_NEAR(value("ap_dip_d4_5"), 0.55, 1e-15);
  PublishedNumber drop;
  drop.value_kind = PublishedNumberKind::profile;
  drop.bin = {0, 0.2, true};
  drop.minus = PositionInterval{0.8, 1, true};
  EXPECT_NEAR(recompute_published_number(drop, run_).value, 0.07, 1e-15);
  PublishedNumber line;
  line.value_kind = PublishedNumberKind::line;
  line.bin = {410, 450, false};
  EXPECT_NEAR(recompute_published_number(line, run_).value, 0.56, 1e-15);
  line.layer = 9;
  EXPECT_NEAR(recompute_published_number(line, run_).value, 0.46, 1e-15);
}

// Results of analyses with other options are not compared with published numbers.
TEST_F(Metrics, OtherFifthsAndThresholdsAreNotCompared) {
  write_file(folder_.file("summary.json"),
             "{\"model\": \"m\", \"options\": {\"fifths\": \"context\", \"taxonomy_high\": 0.8}}");
  EXPECT_NEAR(value("ap_first20"), 0.585, 1e-15);  // of the profile, not of head_metrics
  EXPECT_NEAR(value("ap_last20"), 0.515, 1e-15);
  EXPECT_NEAR(value("ap_drop"), 0.07, 1e-15);
  EXPECT_THAT(of("mixed").missing, HasSubstr("other thresholds"));
  EXPECT_THAT(of("mixed_heads").missing, HasSubstr("other thresholds"));
  EXPECT_DOUBLE_EQ(value("r_q"), 0.7);
}

// The centres of five bins lie on the edges of tenths: 10 %, 30 %, ... 90 %.
TEST_F(Metrics, ACentreOnAnEdgeBelongsToTheUpperBin) {
  Table table;
  table.column("layer", Table::Type::integer).column("head", Table::Type::integer);
  for (const char* name : {"bin_low", "bin_high", "ap"}) table.column(name, Table::Type::real);
  for (int bin = 0; bin < 5; ++bin)
    table.add(
        {std::int64_t{0}, std::int64_t{0}, 700.0 * bin + 3, 700.0 * (bin + 1) + 3, 1.0 * bin});
  table.write_parquet(folder_.file("head_profile.parquet"));
  for (int tenth = 0; tenth < 10; ++tenth) {
    const double value = profile(tenth / 10.0, (tenth + 1) / 10.0, true);
    const bool empty = tenth % 2 == 0;
    EXPECT_EQ(std::isnan(value), empty) << tenth;
    EXPECT_EQ(empty ? 0 : value, empty ? 0 : tenth / 2) << tenth;
  }
}

TEST_F(Metrics, SeveralRunsArePooled) {
  RunTables both({{"a", folder_.path()}, {"b", folder_.path()}});
  EXPECT_EQ(both.label(), "2 runs");
  PublishedNumber number;
  number.metric = "query_heads";
  EXPECT_DOUBLE_EQ(recompute_published_number(number, both).value, 4);
  number.metric = "r_q";
  EXPECT_DOUBLE_EQ(recompute_published_number(number, both).value, 0.7);
  EXPECT_TRUE(std::isnan(recompute_published_number(number, both).se));
}

}  // namespace
}  // namespace qkscope
