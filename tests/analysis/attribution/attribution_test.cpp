// Score attribution: sums over components equal scores in every family, and tables agree.
#include "qkscope/experimental/attribution.h"

#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

#include <gmock/gmock.h>

#include "error_message.h"
#include "golden_text.h"
#include "qkscope/forward.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

// Pass and decomposition are sums of float32 products in another order.
constexpr double kRounding = 2e-5;

ScoreAttribution attribute_golden(const Model& model, const std::string& name,
                                  AttributionOptions options) {
  options.heads = last_heads(model.config());
  const auto tokens = golden_tokens(name);
  options.queries = {-1, std::ssize(tokens) / 2};
  return attribute_scores(model, tokens, options);
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, ComponentsSumToTheScore) {
  const auto model = Model::load(golden_path(GetParam()), {.device = "cpu", .quiet = true});
  const auto attribute = [&](bool experts, bool biases) {
    return attribute_golden(model, GetParam(),
                            {.keys = "top:4", .experts = experts, .biases = biases});
  };
  if (is_refused(model.config())) {
    EXPECT_THAT(bad_input_message([&] { attribute(false, false); }),
                HasSubstr(model.config().family));
    return;
  }
  const bool shared = model.config().experts.shared_d_mlp > 0;
  if (shared) {
    EXPECT_THAT(bad_input_message([&] { attribute(true, false); }), HasSubstr("shared expert"));
  }
  const auto plain = attribute(false, false);
  const auto split = attribute(!shared, true);
  ASSERT_FALSE(plain.pairs().empty());
  ASSERT_EQ(plain.pairs().size(), split.pairs().size());
  EXPECT_LT(worst_residual(plain), kRounding);
  EXPECT_LT(worst_residual(split), kRounding);
  std::printf("%s: worst residual %.1e, with experts and biases split %.1e\n", GetParam().c_str(),
              worst_residual(plain), worst_residual(split));
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(golden_models()),
                         [](const auto& name) { return name.param; });

// Families with parts that need labels of their own.
TEST(Attribution, LabelsNameEveryPart) {
  const auto labels = [](const char* name, AttributionOptions options) {
    const auto model = Model::load(golden_path(name), {.device = "cpu", .quiet = true});
    return attribute_golden(model, name, std::move(options)).q_components(0);
  };
  EXPECT_THAT(labels("llama_gqa", {}), testing::Contains("1_mlp_out").Times(0));
  EXPECT_THAT(labels("llama_gqa", {}),
              testing::IsSupersetOf({"embed", "L0H0", "L0H3", "0_mlp_out"}));
  EXPECT_THAT(labels("gpt2", {}), testing::IsSupersetOf({"embed", "pos_embed", "bias", "b_Q"}));
  EXPECT_THAT(labels("olmo", {}), testing::Contains("clip_Q"));
  EXPECT_THAT(labels("mixtral", {.experts = true}),
              testing::AllOf(testing::Contains(HasSubstr("L0E")),
                             testing::Not(testing::Contains("0_mlp_out"))));
}

// The score of the pass: hook_attn_scores, which this family neither caps nor masks here.
TEST(Attribution, ScoreAndAttentionAreThoseOfThePass) {
  const auto model = Model::load(golden_path("qwen3"), {.device = "cpu", .quiet = true});
  const auto tokens = golden_tokens("qwen3");
  AttributionOptions options{.heads = {{1, 2}}, .queries = {20}, .keys = "all"};
  const auto found = attribute_scores(model, tokens, options);
  Collector collector({{Stage::attn_scores, 1}, {Stage::pattern, 1}}, {20});
  Batch batch;
  batch.add(tokens);
  model.run(batch, collector);
  const auto at = [&](std::size_t stage, std::int64_t key) {
    const auto& tensor = collector.kept()[stage].activation;
    return tensor.data<float>()[2 * tensor.dim(2) + key];
  };
  ASSERT_EQ(found.pairs().size(), 21u);
  for (const auto& pair : found.pairs()) {
    EXPECT_NEAR(pair.score, at(0, pair.key), 1e-5);  // float32 dot product of 16 numbers
    EXPECT_EQ(pair.attention, at(1, pair.key));
  }
}

TEST(Attribution, TopKeysHaveTheMostAttentionAndOthersCompleteTheSum) {
  const auto model = Model::load(golden_path("llama_gqa"), {.device = "cpu", .quiet = true});
  const auto found =
      attribute_scores(model, golden_tokens("llama_gqa"), {.heads = {{1, 0}}, .keys = "top:3"});
  ASSERT_EQ(found.pairs().size(), 3u);
  EXPECT_GE(found.pairs()[0].attention, found.pairs()[1].attention);
  EXPECT_GE(found.pairs()[1].attention, found.pairs()[2].attention);
  const auto table = found.table(4);
  EXPECT_EQ(table.rows(), 3 * 5);
  EXPECT_EQ(table.find("q_component")->texts[4], "others");
  for (std::size_t pair = 0; pair < 3; ++pair) {
    double total = 0;
    for (std::size_t row = 5 * pair; row < 5 * pair + 5; ++row)
      total += table.find("value")->reals[row];
    EXPECT_NEAR(total, found.pairs()[pair].score, 1e-12);
  }
  const auto all = found.table(0);
  EXPECT_EQ(all.rows(), 3 * static_cast<std::int64_t>(found.q_components(0).size() *
                                                      found.k_components(0).size()));
}

// Partial rotary (glm_quarter), interleaved pairs (glm) and a NoPE layer (smollm3_list).
TEST(Attribution, RotaryPairsSumToTheScore) {
  for (const std::string name : {"glm_quarter", "glm", "smollm3_list", "rope_yarn"}) {
    const auto model = Model::load(golden_path(name), {.device = "cpu", .quiet = true});
    const auto found = attribute_golden(model, name, {.keys = "top:2"});
    for (const bool cross : {false, true}) {
      const auto table = found.rotary_table(cross, 0);
      std::map<std::vector<std::int64_t>, double> sums;
      for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row)
        sums[{table.find("head")->integers[row], table.find("query")->integers[row],
              table.find("key")->integers[row]}] += table.find("value")->reals[row];
      for (const auto& pair : found.pairs())
        EXPECT_NEAR((sums[{pair.head.head, pair.query, pair.key}]), pair.score - pair.residual,
                    1e-9 * (1 + pair.magnitude))
            << name;
    }
  }
}

TEST(Attribution, DistanceCurveMeetsTheScoreAtItsOwnDistance) {
  const auto model = Model::load(golden_path("glm_quarter"), {.device = "cpu", .quiet = true});
  const auto found = attribute_scores(model, golden_tokens("glm_quarter"),
                                      {.heads = last_heads(model.config()), .keys = "-3"});
  const auto table = found.distance_table();
  std::size_t checked = 0;
  for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row)
    if (table.find("distance")->integers[row] == 2) {
      EXPECT_NEAR(table.find("value")->reals[row], table.find("score")->reals[row],
                  1e-5 * (1 + std::abs(table.find("score")->reals[row])));
      ++checked;
    }
  EXPECT_EQ(checked, found.pairs().size());
}

TEST(Attribution, DistanceCurveOfALayerWithoutPositionsIsFlat) {
  const auto model = Model::load(golden_path("smollm3_list"), {.device = "cpu", .quiet = true});
  std::int64_t nope = 0;
  while (model.config().rope(nope) != nullptr) ++nope;
  const auto found =
      attribute_scores(model, golden_tokens("smollm3_list"), {.heads = {{nope, 0}}, .keys = "0"});
  const auto table = found.distance_table();
  EXPECT_EQ(table.find("value")->reals.front(), table.find("value")->reals.back());
}

// Recomputes the softmax without a component from the full matrices of all keys. gemma2 has a soft
// cap.
TEST(Attribution, EffectRecomputesTheSoftmaxWithoutAComponent) {
  for (const std::string name : {"llama_gqa", "gemma2"}) {
    const auto model = Model::load(golden_path(name), {.device = "cpu", .quiet = true});
    const AttentionHead head{1, 1};
    AttributionOptions options{.heads = {head}, .queries = {12}, .keys = "all", .effect = true};
    const auto found = attribute_scores(model, golden_tokens(name), options);
    const double cap = model.config().attention_softcap;
    std::vector<double> weights;
    for (std::size_t pair = 0; pair < found.pairs().size(); ++pair) {
      const auto matrix = found.matrix(pair);
      const auto columns = found.k_components(pair).size();
      double score = sum(matrix);
      for (std::size_t c = 0; c < columns; ++c) score -= matrix[c];  // without q component 0
      weights.push_back(std::exp(cap > 0 ? cap * std::tanh(score / cap) : score));
    }
    const auto table = found.effect_table();
    for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row)
      if (table.find("side")->texts[row] == "q" && table.find("component")->texts[row] == "embed") {
        EXPECT_NEAR(
            table.find("attention_without")->reals[row],
            weights[static_cast<std::size_t>(table.find("key")->integers[row])] / sum(weights),
            1e-9)
            << name;
      }
  }
}

// gpt_oss has learned sinks and sliding windows, which effects must know.
TEST(Attribution, EffectWithSinksKeepsTheAttentionOfThePass) {
  const auto model = Model::load(golden_path("gpt_oss"), {.device = "cpu", .quiet = true});
  AttributionOptions options{
      .heads = last_heads(model.config()), .queries = {-1}, .keys = "top:4", .effect = true};
  const auto found = attribute_scores(model, golden_tokens("gpt_oss"), options);
  const auto table = found.effect_table();
  // Without a component that is small, attention stays near that of the pass, which knows the sink.
  for (const auto& pair : found.pairs()) {
    double nearest = 1;
    for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row)
      if (table.find("head")->integers[row] == pair.head.head &&
          table.find("key")->integers[row] == pair.key)
        nearest = std::min(nearest, std::abs(table.find("attention_without")->reals[row] -
                                             table.find("attention")->reals[row]));
    EXPECT_LT(nearest, 0.02);
  }
}

TEST(Attribution, BadInputIsRefused) {
  const auto model = Model::load(golden_path("llama_gqa"), {.device = "cpu", .quiet = true});
  const auto tokens = golden_tokens("llama_gqa");
  const auto message = [&](const AttributionOptions& options) {
    return bad_input_message([&] { attribute_scores(model, tokens, options); });
  };
  EXPECT_THAT(message({}), HasSubstr("found none"));
  EXPECT_THAT(message({.heads = {{2, 0}}}), HasSubstr("no head 2.0"));
  EXPECT_THAT(message({.heads = {{0, 4}}}), HasSubstr("no head 0.4"));
  EXPECT_THAT(message({.heads = {{1, 0}}, .queries = {37}}), HasSubstr("outside the text"));
  EXPECT_THAT(message({.heads = {{1, 0}}, .queries = {3}, .keys = "5"}),
              HasSubstr("key 5 comes after query 3"));
  EXPECT_THAT(message({.heads = {{1, 0}}, .keys = "top:0"}), HasSubstr("top:N"));
  EXPECT_THAT(message({.heads = {{1, 0}}, .keys = "best"}), HasSubstr("keys"));
  EXPECT_THAT(bad_input_message([&] { parse_heads("1", model.config()); }),
              HasSubstr("LAYER.HEAD"));
  EXPECT_EQ(parse_heads("1.*", model.config()).size(), 4u);
  EXPECT_THAT(bad_input_message([&] {
                attribute_scores(model, tokens, {.heads = {{1, 0}}}).effect_table();
              }),
              HasSubstr("effect"));
}

}  // namespace
}  // namespace qkscope
