// pool_results(): statistics over the heads of several analyses, and correlation with scores.
#include <cmath>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/numerics/sample_statistics.h"
#include "error_message.h"
#include "qkscope/analysis.h"
#include "qkscope/experimental/study.h"
#include "study/compare/run_tables.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

class Pool : public testing::Test {
 protected:
  // Results of a small planted capture.
  AnalysisRun analyse(const std::string& label, std::uint64_t seed) const {
    PlantedCaptureOptions capture;
    capture.data_root = folder_.file("capture-" + label);
    capture.layers = 4;
    capture.query_heads = 2;
    capture.key_heads = 1;
    capture.nope_every = 2;
    capture.active_planes = 1;
    capture.head.dim = 8;
    capture.head.examples = 12;
    capture.head.context = 512;
    capture.head.bucket_size = 64;
    capture.head.drift_q = 1e-3 * static_cast<double>(seed);
    capture.head.drift_k = 2e-3;
    capture.head.seed = seed;
    write_planted_capture(capture);
    AnalyzeOptions options;
    options.data_root = capture.data_root;
    options.label = label;
    options.quiet = true;
    auto run = analyze_capture(options);
    write_results(folder_.file(label), run, options);
    return run;
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.file(name)) << text;
    return folder_.file(name);
  }

  TemporaryFolder folder_;
};

// Returns the row whose first text columns have these values.
std::optional<std::size_t> find_row(const Table& table, const std::vector<std::string>& texts) {
  for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row) {
    bool same = true;
    for (std::size_t i = 0; i < texts.size(); ++i)
      same = same && table.columns()[i].texts[row] == texts[i];
    if (same) return row;
  }
  return {};
}

TEST_F(Pool, CountsEveryHeadOnce) {
  const auto first = analyse("first", 1);
  const auto second = analyse("second", 5);
  PoolOptions options;
  options.results = {folder_.file("first"), folder_.file("second")};
  options.pairs = {{"bias_strength", "separation_strength"}};
  const auto tables = pool_results(options);
  double sum = 0;
  double positive = 0;
  for (const auto* run : {&first, &second})
    for (const auto& head : run->heads) {
      sum += head.rotation->bias_strength;
      positive += head.rotation->bias_strength > 0 ? 1 : 0;
    }
  const auto& columns = tables.pooled.columns();
  auto row = find_row(tables.pooled, {"all", "all", "bias_strength"});
  ASSERT_TRUE(row);
  EXPECT_EQ(columns[3].integers[*row], 16);
  EXPECT_NEAR(columns[4].reals[*row], sum / 16, 1e-15);
  row = find_row(tables.pooled, {"all", "all", "share_positive_bias"});
  EXPECT_NEAR(columns[4].reals[*row], positive / 16, 1e-15);
  row = find_row(tables.pooled, {"second", "nope", "r_q_pc1"});
  ASSERT_TRUE(row);
  EXPECT_EQ(columns[3].integers[*row], 4);
  // Layers 0 to 3 are at depths 0, 1/3, 2/3 and 1.
  row = find_row(tables.depth, {"first", "alpha_k"});
  ASSERT_TRUE(row);
  const auto& depth = tables.depth.columns();
  for (const int bin : {0, 3, 6, 9}) {
    EXPECT_EQ(depth[2].integers[*row], bin);
    EXPECT_EQ(depth[5].integers[*row], 2);
    ++*row;
  }
  EXPECT_TRUE(find_row(tables.correlations, {"all", "bias_strength", "separation_strength"}));
  EXPECT_EQ(tables.correlations.rows(), 3);
}

TEST_F(Pool, CorrelatesTheOverviewWithScores) {
  PoolOptions options;
  std::vector<double> bias;
  for (const std::uint64_t seed : {1, 3, 6, 9}) {
    const auto label = "m" + std::to_string(seed);
    double mean = 0;
    for (const auto& head : analyse(label, seed).heads) mean += head.rotation->bias_strength / 8;
    bias.push_back(mean);
    options.results.push_back(folder_.file(label));
  }
  options.scores = write("scores.csv",
                         "benchmark,name,mode,metric,value\n"
                         "B,m1,,F1,10\nB,m3,,F1,30\nB,m6,,F1,20\nB,m9,,F1,50\nB,other,,F1,7\n"
                         "C,m1,thinking,F1,1\n");
  options.by = "name";
  const auto tables = pool_results(options);
  const auto row = find_row(tables.scores, {"B / F1", "bias_strength"});
  ASSERT_TRUE(row);
  const auto expected = correlate_pairs(bias, std::vector<double>{10, 30, 20, 50});
  EXPECT_EQ(tables.scores.columns()[2].integers[*row], 4);
  EXPECT_NEAR(tables.scores.columns()[3].reals[*row], expected.pearson.r, 1e-12);
  EXPECT_NEAR(tables.scores.columns()[5].reals[*row], expected.spearman.r, 1e-12);
  const auto single = find_row(tables.scores, {"C / thinking / F1", "r_q"});
  ASSERT_TRUE(single);
  EXPECT_TRUE(std::isnan(tables.scores.columns()[3].reals[*single]));
  options.by = "model";
  EXPECT_THAT(bad_input_message([&] { pool_results(options); }),
              HasSubstr("no column \"model\" with the names of models"));
  options.by = "benchmark";
  options.scores = write("others.csv", "benchmark,score\nx,1\n");
  EXPECT_THAT(bad_input_message([&] { pool_results(options); }),
              HasSubstr("no run has a name of column"));
  options.scores.clear();
  options.pairs = {{"bias_strenth", "r_k_a"}};
  EXPECT_THAT(bad_input_message([&] { pool_results(options); }),
              HasSubstr("is bias_strength meant?"));
  options.pairs.clear();
  options.results.push_back(options.results.front());
  EXPECT_THAT(bad_input_message([&] { pool_results(options); }),
              HasSubstr("there is another run named m1"));
}

TEST_F(Pool, ReadsScoresInColumns) {
  const auto scores = read_benchmark_results(
      write("wide.csv", "model,year,LB,note\na,2024,1.5,x\nb,,2,y\n"), "model");
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0].name, "year");
  EXPECT_EQ(scores[0].models.size(), 1u);
  EXPECT_EQ(scores[1].models.at("b"), 2);
  EXPECT_THAT(bad_input_message([&] {
                read_benchmark_results(write("twice.csv", "model,LB\na,1\na,2\n"), "model");
              }),
              HasSubstr("twice.csv: row 3: LB of a is there twice"));
}

// Against scipy.stats.pearsonr and spearmanr.
TEST(CorrelationCoefficients, AgreesWithScipy) {
  const std::vector<double> x = {1, 2, 2, 4, 5.5, 7};
  const std::vector<double> y = {3, 1, 4, 4, std::nan(""), 9};
  const auto found = correlate_pairs(x, y);
  EXPECT_EQ(found.n, 5);
  EXPECT_NEAR(found.pearson.r, 0.8804296005407636, 1e-12);
  EXPECT_NEAR(found.pearson.p, 0.0487329438261018, 1e-12);
  EXPECT_NEAR(found.spearman.r, 0.7631578947368421, 1e-12);
  EXPECT_NEAR(found.spearman.p, 0.13333911953180624, 1e-12);
  EXPECT_TRUE(std::isnan(correlate_pairs({x.data(), 2}, {y.data(), 2}).pearson.r));
}

}  // namespace
}  // namespace qkscope
