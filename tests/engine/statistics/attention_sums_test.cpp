#include "engine/statistics/attention_sums.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/core/numbers.h"

namespace qkscope {
namespace {

StatisticsSettings settings(bool all_keys = false) {
  StatisticsSettings s;
  s.near_keys = true;
  s.all_keys = all_keys;
  s.buckets = 2;
  return s;
}

TEST(AttentionColumns, NamesFollowTheColumnLayout) {
  auto s = settings(true);
  s.kl.push_back({.name = "fp8"});
  s.keep.push_back({.name = "first_4_last_16"});
  const auto layout = attention_column_layout(s);
  const auto names = attention_column_names(s);
  EXPECT_EQ(names[as_index(AttentionColumnLayout::offset(NearKeyColumn::ind_self))], "ind_self");
  EXPECT_EQ(names[as_index(AttentionColumnLayout::offset(NearKeyColumn::alpha_3))], "alpha_3");
  EXPECT_EQ(names[as_index(layout.near_distance_band_column(8))], "near_8");
  EXPECT_EQ(names[as_index(layout.entropy_column())], "entropy");
  EXPECT_EQ(names[as_index(layout.distance_band_column(17))], "dist_17");
  EXPECT_EQ(names[as_index(layout.key_count_upper_bound_column(2))], "keys_99_high");
  EXPECT_EQ(names[as_index(layout.top_mass_lower_bound_column(4))], "top_1024_low");
  EXPECT_EQ(names[as_index(layout.kl_replaced_keys_column(0))], "kl_fp8");
  EXPECT_EQ(names[as_index(layout.kl_evicted_column(0))], "kl_evicted_first_4_last_16");
  // Last, so that the other columns of older statistics stay where they are.
  EXPECT_EQ(names.back(), "sink_above_half");
  EXPECT_EQ(layout.sink_above_half_column() + 1, layout.columns());
  EXPECT_TRUE(is_per_query_column("near_8"));
  EXPECT_FALSE(is_per_query_column("prev_first"));
}

// A random attention pattern over tokens with many repetitions, and its sums.
class PatternScores : public testing::Test {
 protected:
  PatternScores() : pattern(n, std::vector<double>(n)), sums(as_index(layout.columns())) {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> uniform(0.01, 1.0);
    for (auto& token : tokens) token = static_cast<std::int32_t>(random() % 7);
    for (std::size_t i = 0; i < n; ++i) {
      double total = 0;
      for (std::size_t j = 0; j <= i; ++j) total += pattern[i][j] = uniform(random);
      for (std::size_t j = 0; j <= i; ++j) pattern[i][j] /= total;
      add_row(i);
    }
  }

  double& sum(NearKeyColumn column) {
    return sums[as_index(AttentionColumnLayout::offset(column))];
  }

  void add_row(std::size_t i) {
    sum(NearKeyColumn::sink_0) += pattern[i][0];
    sum(NearKeyColumn::self) += pattern[i][i];
    if (i > 0) sum(NearKeyColumn::prev) += pattern[i][i - 1];
    if (i == 1) sum(NearKeyColumn::prev_first) += pattern[1][0];
    for (std::size_t j = 0; j < i; ++j)
      if (tokens[j] == tokens[i]) {
        sum(NearKeyColumn::dup) += pattern[i][j];
        if (j == 0) sum(NearKeyColumn::dup_first) += pattern[i][j];
      }
    for (std::size_t j = 1; j <= i; ++j)
      if (tokens[j - 1] == tokens[i]) {
        sum(NearKeyColumn::ind) += pattern[i][j];
        if (j == i) sum(NearKeyColumn::ind_self) += pattern[i][j];
      }
    if (i < 64)
      for (std::size_t k = 0; k < 4 && k <= i; ++k)
        sums[as_index(AttentionColumnLayout::offset(NearKeyColumn::alpha_0)) + k] += pattern[i][k];
  }

  // Reference: the TransformerLens formulas on the full square.
  double score(const std::vector<std::vector<double>>& detect, bool no_bos, bool no_current,
               bool absolute) const {
    double hit = 0;
    double all = 0;
    double error = 0;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j <= i; ++j) {
        const bool out = (no_bos && j == 0) || (no_current && i == j);
        const double p = out ? 0.0 : pattern[i][j];
        const double d = out ? 0.0 : detect[i][j];
        hit += p * d;
        all += p;
        error += std::abs(p - d);
      }
    return absolute ? 1.0 - std::round(error / static_cast<double>(n) * 1000.0) / 1000.0
                    : hit / all;
  }

  const std::size_t n = 100;
  AttentionColumnLayout layout = attention_column_layout(settings());
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(100);
  std::vector<std::vector<double>> pattern;
  std::vector<double> sums;
};

TEST_F(PatternScores, MatchTheTransformerLensFormulas) {
  std::vector<std::vector<double>> previous(n, std::vector<double>(n)), duplicate = previous,
                                                                        induction = previous;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      if (j + 1 == i) previous[i][j] = 1;
      if (j < i && tokens[j] == tokens[i]) duplicate[i][j] = 1;
      if (j >= 1 && tokens[j - 1] == tokens[i]) induction[i][j] = 1;
    }
  const auto names = document_column_names(settings());
  std::vector<double> values(names.size());
  fill_document_columns(layout, count_token_patterns(tokens), sums, {}, values);
  const auto value = [&](const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    EXPECT_NE(found, names.end()) << name;
    return values[static_cast<std::size_t>(found - names.begin())];
  };
  const std::pair<const char*, const std::vector<std::vector<double>>*> patterns[] = {
      {"previous_token_head", &previous},
      {"duplicate_token_head", &duplicate},
      {"induction_head", &induction}};
  for (const auto& [name, detect] : patterns)
    for (const bool no_bos : {false, true})
      for (const bool no_current : {false, true}) {
        const auto full =
            std::string(name) + (no_bos ? "_nobos" : "") + (no_current ? "_nocur" : "");
        EXPECT_NEAR(value(full), score(*detect, no_bos, no_current, false), 1e-12) << full;
        EXPECT_NEAR(value(full + "_abs"), score(*detect, no_bos, no_current, true), 1e-9) << full;
      }
}

TEST_F(PatternScores, SinkAlphaAveragesTheFirst64Rows) {
  const auto names = document_column_names(settings());
  std::vector<double> values(names.size());
  fill_document_columns(layout, count_token_patterns(tokens), sums, {}, values);
  const auto at = std::find(names.begin(), names.end(), "sink_alpha_64_0") - names.begin();
  for (std::size_t k = 0; k < 4; ++k) {
    double expected = 0;
    for (std::size_t i = k; i < 64; ++i) expected += pattern[i][k] / static_cast<double>(64 - k);
    EXPECT_NEAR(values[static_cast<std::size_t>(at) + k], expected, 1e-12);
  }
  const auto short_text = std::span(tokens).first(63);
  fill_document_columns(layout, count_token_patterns(short_text), sums, {}, values);
  EXPECT_TRUE(std::isnan(values[static_cast<std::size_t>(at)]));
}

TEST(KeyShares, AreSharesOfTheKeysWithMostMass) {
  const auto s = settings(true);
  const auto layout = attention_column_layout(s);
  const std::vector<double> sums(as_index(layout.columns()));
  const auto names = document_column_names(s);
  std::vector<double> values(names.size());
  const auto value = [&](const std::string& name) {
    return values[as_index(std::find(names.begin(), names.end(), name) - names.begin())];
  };
  std::vector<double> keys(100, 0.0);
  keys[17] = 3.0;
  fill_document_columns(layout, {.tokens = 100}, sums, keys, values);
  EXPECT_DOUBLE_EQ(value("key_share_1"), 1.0);
  EXPECT_NEAR(value("key_gini"), 0.99, 1e-12);  // Gini of one that has all
  fill_document_columns(layout, {.tokens = 100}, sums, std::vector<double>(100, 2.0), values);
  EXPECT_NEAR(value("key_share_20"), 0.2, 1e-12);
  EXPECT_NEAR(value("key_gini"), 0.0, 1e-12);
}

// Two documents of 10 and 30 rows with row values 1 and 3.
TEST(AttentionTables, MeanDeviationAndClusteredErrorHaveClosedForms) {
  auto a = make_attention_statistics(settings(), 1, 1);
  const auto columns = a.columns.size();
  a.documents = 2;
  a.rows = {20, 20};
  a.sum[0] = 10 * 1 + 10 * 3;
  a.square[0] = 10 * 1 + 10 * 9;
  a.sum[columns] = 20 * 3;
  a.square[columns] = 20 * 9;
  a.row_square = {200, 400, 1000};
  a.document_square[2 * columns] = 10.0 * 10 + 90.0 * 90;
  a.document_cross[2 * columns] = 10.0 * 10 + 90.0 * 30;
  const auto all = summarize_column(a, 0, 0, -1, 0);
  EXPECT_DOUBLE_EQ(all.mean, 2.5);
  EXPECT_NEAR(all.sd, std::sqrt((10 * 2.25 + 30 * 0.25) / 40), 1e-12);
  // Residuals of the document sums: 10 - 25 and 90 - 75.
  EXPECT_NEAR(all.se, std::sqrt(2 * 15.0 * 15.0 * 2) / 40, 1e-12);
  EXPECT_DOUBLE_EQ(summarize_column(a, 0, 0, 1, 0).mean, 3.0);
  EXPECT_EQ(count_query_rows(a, -1), 40);
  auto twice = a;
  merge_attention_statistics(twice, a);
  EXPECT_DOUBLE_EQ(summarize_column(twice, 0, 0, -1, 0).mean, 2.5);
  EXPECT_EQ(twice.documents, 4);
}

}  // namespace
}  // namespace qkscope
