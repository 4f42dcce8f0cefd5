// Tests of qkscope/experimental/heads.h: tables of head scores and custom patterns.
#include <cmath>

#include <gmock/gmock.h>

#include "base/core/numbers.h"
#include "base/io/json.h"
#include "paths.h"
#include "qkscope/error.h"
#include "qkscope/experimental/heads.h"
#include "qkscope/forward.h"

namespace qkscope {
namespace {

using Ids = std::vector<std::int32_t>;
using Measure = HeadScoreOptions::Measure;

Model load(const std::string& name) {
  return Model::load(golden_path(name), {.device = "cpu"});
}

// A text in which many tokens repeat.
Ids some_tokens(std::size_t count, std::int32_t seed = 7) {
  Ids ids;
  for (std::size_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int32_t>((i * 5 + i / 3 + as_index(seed)) % 11) + 3);
  return ids;
}

double cell(const Table& table, const std::string& column, std::size_t row) {
  return table.find(column)->reals[row];
}

// Tolerances: mul sums 100 float32 probabilities; both sides round abs to three decimals.
TEST(HeadTable, MatchesTransformerLens) {
  const auto expected = load_json(golden_path("head_scores.json"))["llama_gqa"];
  const auto model = load("llama_gqa");
  for (const bool bos : {false, true})
    for (const bool current : {false, true})
      for (const auto measure : {Measure::mul, Measure::abs}) {
        HeadScoreOptions options;
        options.measure = measure;
        options.exclude_bos = bos;
        options.exclude_current_token = current;
        const auto table = score_heads(model, {expected["token_ids"].get<Ids>()}, options);
        const std::string suffix = std::string(bos ? "_nobos" : "") + (current ? "_nocur" : "");
        for (const auto& [pattern, measures] : expected["scores"].items()) {
          const auto& scores = measures[measure == Measure::abs ? "abs" : "mul"][suffix];
          for (std::size_t row = 0; row < as_index(table.rows()); ++row) {
            const auto layer = as_index(table.find("layer")->integers[row]);
            const auto head = as_index(table.find("head")->integers[row]);
            EXPECT_NEAR(cell(table, pattern, row), scores[layer][head].get<double>(),
                        measure == Measure::abs ? 1e-6 : 1e-5)
                << pattern << suffix << ", row " << row;
          }
        }
      }
}

TEST(HeadTable, AveragesSeveralTexts) {
  const auto model = load("llama_gqa");
  const Ids a = some_tokens(40);
  const Ids b = some_tokens(25, 3);
  std::vector<std::int64_t> told;
  HeadScoreOptions options;
  options.on_batch = [&](std::int64_t done) { told.push_back(done); };
  const auto both = score_heads(model, {a, b}, options);
  const auto first = score_heads(model, {a});
  const auto second = score_heads(model, {b});
  EXPECT_EQ(told, std::vector<std::int64_t>{2});
  for (std::size_t row = 0; row < as_index(both.rows()); ++row) {
    EXPECT_EQ(both.find("texts")->integers[row], 2);
    EXPECT_EQ(both.find("tokens")->integers[row], 65);
    EXPECT_NEAR(cell(both, "induction_head", row),
                (cell(first, "induction_head", row) + cell(second, "induction_head", row)) / 2,
                1e-12);
    EXPECT_NEAR(cell(both, "entropy", row),
                (40 * cell(first, "entropy", row) + 25 * cell(second, "entropy", row)) / 65, 1e-12);
  }
}

// Induction pattern, shape (tokens, tokens).
std::vector<float> induction_pattern(const Ids& tokens) {
  const auto n = tokens.size();
  std::vector<float> pattern(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 1; j <= i; ++j)
      pattern[i * n + j] = tokens[j - 1] == tokens[i] && j - 1 < i ? 1.0F : 0.0F;
  return pattern;
}

TEST(HeadTable, CustomPatternScoresLikeTheEqualBuiltInPattern) {
  const auto model = load("mistral_window");
  const Ids tokens = some_tokens(60);
  for (const auto measure : {Measure::mul, Measure::abs})
    for (const bool left_out : {false, true}) {
      HeadScoreOptions options;
      options.measure = measure;
      options.exclude_bos = left_out;
      options.exclude_current_token = left_out;
      const auto table = score_heads(model, {tokens}, options);
      const auto scores = score_pattern(model, tokens, induction_pattern(tokens), options);
      ASSERT_EQ(std::ssize(scores), table.rows());
      for (std::size_t row = 0; row < scores.size(); ++row)
        EXPECT_NEAR(
            scores[row], cell(table, "induction_head", row),
            measure == Measure::abs ? 1.001e-3 : 1e-5);  // rounding to three decimals may differ
    }
}

TEST(HeadTable, RefusesModelsWithLearnedSinks) {
  const auto model = load("gpt_oss");
  try {
    score_heads(model, {some_tokens(8)});
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_THAT(error.what(), testing::HasSubstr("learned sinks of this gpt_oss model"));
  }
  // The score of a custom pattern is normalized by the attention paid to keys.
  const std::vector<float> itself = {1, 0, 0, 1};
  for (const double score : score_pattern(model, {5, 6}, itself)) EXPECT_GT(score, 0.0);
}

// Compares the means with patterns of a separate pass. Tolerance 1e-6: float32 weights and two
// roundings of the softmax.
TEST(HeadTable, MatchesPatternMeansWithLogitSoftCapping) {
  const auto model = load("gemma2");
  ASSERT_GT(model.config().attention_softcap, 0.0);
  const Ids tokens = some_tokens(30);
  const auto table = score_heads(model, {tokens});
  std::vector<HookPoint> points;
  for (std::int64_t layer = 0; layer < model.config().n_layers; ++layer)
    points.push_back({Stage::pattern, layer});
  Collector collector(points, {});
  Batch batch;
  batch.add(tokens);
  model.run(batch, collector);
  const auto n = std::ssize(tokens);
  std::size_t row = 0;
  for (const auto& [point, pattern] : collector.kept())
    for (std::int64_t head = 0; head < model.config().n_heads; ++head, ++row) {
      double entropy = 0;
      double sink = 0;
      double dup = 0;
      double distance = 0;
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j <= i; ++j) {
          const double p = pattern.data<float>()[(head * n + i) * n + j];
          if (p > 0) entropy -= p * std::log(p);
          if (j == 0) sink += p;
          if (j < i && tokens[as_index(j)] == tokens[as_index(i)]) dup += p;
          distance += p * static_cast<double>(i - j);
        }
      const auto count = static_cast<double>(n);
      EXPECT_NEAR(cell(table, "entropy", row), entropy / count, 1e-6);
      EXPECT_NEAR(cell(table, "sink_0", row), sink / count, 1e-6);
      EXPECT_NEAR(cell(table, "dup", row), dup / count, 1e-6);
      EXPECT_NEAR(cell(table, "distance_mean", row), distance / count, 1e-5);  // distances reach 30
      EXPECT_NEAR(cell(table, "duplicate_token_head", row), dup / count, 1e-6);
    }
}

void expect_refused(const std::function<void()>& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "expected an error about " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_THAT(error.what(), testing::HasSubstr(words));
  }
}

TEST(HeadTable, NamesMistakes) {
  const auto model = load("llama_gqa");
  expect_refused([&] { score_heads(model, {}); }, "no text");
  expect_refused([&] { score_heads(model, {{}}); }, "text 0 has no tokens");
  expect_refused([&] { score_pattern(model, {3, 4}, {1, 0, 0}); }, "expected 2 x 2");
  expect_refused([&] { score_pattern(model, {3, 4}, {1, 1, 0, 1}); }, "sees no later key");
  expect_refused([&] { score_pattern(model, {3, 4}, {1, 0, 2, 1}); }, "from 0 to 1");
}

}  // namespace
}  // namespace qkscope
