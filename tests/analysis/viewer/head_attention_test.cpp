#include "analysis/viewer/head_attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <gmock/gmock.h>

#include "base/core/numbers.h"
#include "qkscope/forward.h"
#include "viewed_model.h"

namespace qkscope {
namespace {

// Attention of every query from scores in float64, a plain reference for tiles and statistics.
std::vector<std::vector<double>> reference_pattern(QueryKeyStore& store, std::int64_t layer,
                                                   std::int64_t head) {
  const auto& config = store.config();
  const auto vectors = store.head_vectors(layer, head);
  const auto window = config.layers[as_index(layer)].window;
  std::vector<std::vector<double>> pattern(as_index(store.rows()));
  for (std::int64_t query = 0; query < store.rows(); ++query) {
    const auto first = window > 0 ? std::max<std::int64_t>(0, query - window + 1) : 0;
    auto& row = pattern[as_index(query)];
    row.resize(as_index(store.rows()));
    double sum = 0;
    for (auto key = first; key <= query; ++key) {
      double score = 0;
      for (std::int64_t i = 0; i < config.d_head; ++i)
        score += static_cast<double>(vectors.q[query * config.d_head + i]) *
                 vectors.k[key * config.d_head + i];
      row[as_index(key)] = std::exp(score * config.score_scale(layer));
      sum += row[as_index(key)];
    }
    for (auto& p : row) p /= sum;
  }
  return pattern;
}

// Cell (i, j) of a tile from the pattern.
double reference_cell(const std::vector<std::vector<double>>& pattern, std::int64_t first_query,
                      std::int64_t first_key, std::int64_t width, ReduceOp value) {
  double cell = 0;
  const auto end = static_cast<std::int64_t>(pattern.size());
  for (auto query = first_query; query < std::min(end, first_query + width); ++query)
    for (auto key = first_key; key < std::min(end, first_key + width); ++key) {
      const double p = pattern[as_index(query)][as_index(key)];
      cell = value == ReduceOp::largest ? std::max(cell, p) : cell + p;
    }
  return cell;
}

// Windows, soft caps, learned sinks, NoPE layers, partial rotation, latent attention and chunks.
class ViewedRows : public testing::TestWithParam<const char*> {};

TEST_P(ViewedRows, EqualTheHooksBitByBit) {
  const auto model = golden_model(GetParam());
  const auto ids = some_tokens(50);
  auto store = viewed_model(model, ids);
  const std::vector<std::string> patterns = {"*hook_attn_scores", "*hook_pattern"};
  Collector collector(match_hooks(model->config(), patterns), {17, 49});
  Batch batch;
  batch.add(ids);
  model->run(batch, collector);
  for (const auto& [point, activation] : collector.kept())
    for (std::int64_t head = 0; head < model->config().n_heads; ++head)
      for (const std::int64_t i : {0, 1}) {
        const std::int64_t query = i == 0 ? 17 : 49;
        const auto row = HeadAttention(store, point.layer, head).row(query);
        const float* expected = activation.data<float>() + (head * 2 + i) * activation.dim(2);
        const auto& found = point.stage == Stage::pattern ? row.pattern : row.scores;
        ASSERT_EQ(row.first_key + std::ssize(found), query + 1);
        for (std::int64_t key = row.first_key; key <= query; ++key)
          ASSERT_EQ(found[as_index(key - row.first_key)], expected[key])
              << hook_name(point) << " head " << head << " key " << key;
      }
}

INSTANTIATE_TEST_SUITE_P(Families, ViewedRows,
                         testing::Values("smollm3_list", "mistral_window", "gemma2", "gpt_oss",
                                         "gpt_neox", "glm", "deepseek_v3", "llama4_text"),
                         [](const auto& family) { return std::string(family.param); });

TEST(HeadAttention, FrequenciesAddUpToTheMeanScore) {
  auto store = viewed_model(golden_model("llama_gqa"), some_tokens(60));
  const auto row = HeadAttention(store, 1, 2).row(59);
  double expected = 0;
  for (std::size_t i = 0; i < row.scores.size(); ++i)
    expected += static_cast<double>(row.scores[i]) * row.pattern[i];
  double found = 0;
  for (const float part : row.attended_by_frequency) found += part;
  EXPECT_NEAR(found, expected, 1e-5 * std::max(1.0, std::abs(expected)));  // float32 sums
}

// 2,500 tokens have an overview in cells of 2 x 2 tokens, so all three kinds of tiles occur.
class Tiles : public testing::Test {
 protected:
  static constexpr std::int64_t kTokens = 2500;
  QueryKeyStore store_ = viewed_model(golden_model("smollm3_list"), some_tokens(kTokens));
  std::vector<std::vector<double>> pattern_ = reference_pattern(store_, 2, 1);
  HeadAttention attention_{store_, 2, 1};

  void expect_cells(int level, std::int64_t row, std::int64_t column, ReduceOp value) {
    const auto tile = attention_.tile(level, row, column, value);
    EXPECT_TRUE(tile.exact);
    const auto width = std::int64_t{1} << level;
    for (std::int64_t i = 0; i < kTileCells; i += 5)
      for (std::int64_t j = 0; j < kTileCells; j += 3) {
        const double expected = reference_cell(pattern_, (row * kTileCells + i) * width,
                                               (column * kTileCells + j) * width, width, value);
        // Scores have float32 rounding errors of about 1e-6.
        ASSERT_NEAR(tile.cells[as_index(i * kTileCells + j)], expected, 1e-5 * expected + 1e-9)
            << "level " << level << " cell " << i << ", " << j;
      }
  }
};

TEST_F(Tiles, AreExactAtEveryLevel) {
  EXPECT_EQ(attention_.overview_level(), 1);
  EXPECT_DOUBLE_EQ(attention_.compute_overview_part(60), 1.0);
  for (const auto value : {ReduceOp::largest, ReduceOp::sum}) {
    expect_cells(0, 5, 2, value);
    expect_cells(0, 9, 9, value);
    expect_cells(1, 3, 1, value);
    expect_cells(2, 2, 0, value);
    expect_cells(4, 0, 0, value);
  }
}

TEST_F(Tiles, ArePreviewsUntilTheOverviewIsComplete) {
  const auto preview = attention_.tile(4, 0, 0, ReduceOp::largest);
  EXPECT_FALSE(preview.exact);
  // The preview of row 100 of the cells is query 1608 alone.
  double expected = 0;
  for (std::size_t key = 640; key < 656; ++key) expected = std::max(expected, pattern_[1608][key]);
  EXPECT_NEAR(preview.cells[100 * kTileCells + 40], expected, 1e-5 * expected);
  EXPECT_GT(attention_.compute_overview_part(0), 0.0);
  EXPECT_TRUE(attention_.tile(0, 9, 3, ReduceOp::sum).exact);
}

TEST_F(Tiles, StatisticsAreMeansOverSampledQueries) {
  const auto found = attention_.statistics(64);
  const std::int64_t step = kTokens / 64;
  double entropy = 0;
  double previous = 0;
  for (std::int64_t i = 0; i < 64; ++i) {
    const auto& row = pattern_[as_index(step - 1 + i * step)];
    for (const double p : row)
      if (p > 0) entropy -= p * std::log(p) / 64;
    previous += row[as_index(step - 2 + i * step)] / 64;
  }
  EXPECT_NEAR(found.values[0], entropy, 1e-4);  // float32 means of values near 7
  EXPECT_NEAR(found.values[2], previous, 1e-6);
}

}  // namespace
}  // namespace qkscope
