// Head selection on published models and in edge cases.
#include <gmock/gmock.h>

#include "base/core/error.h"
#include "base/numerics/random.h"
#include "capture/writer/selection.h"
#include "capture_fixture.h"
#include "engine/model/model_config.h"
#include "input/checkpoint/checkpoint.h"
#include "paths.h"
#include "qkscope/experimental/log.h"

namespace qkscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig small_model() {
  ModelConfig model;
  model.n_layers = 4;
  model.n_heads = 4;
  model.n_kv_heads = 2;
  model.layers.resize(4);
  model.layers[1].window = 16;
  model.layers[2].window = 16;
  return model;
}

std::string complaint(const HeadFilter& filter) {
  try {
    select_heads(small_model(), filter);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(HeadSelection, SelectsEveryHeadWithoutAFilter) {
  const auto selection = select_heads(small_model(), {});
  ASSERT_EQ(selection.layers.size(), 4u);
  EXPECT_THAT(selection.layers.at(2).queries, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(selection.layers.at(2).keys, ElementsAre(0, 1));
  EXPECT_EQ(selection.metadata["head_sampling_strategy"], "all");
}

// Layers with a linear recurrence have no heads to capture, and no head is drawn from them.
TEST(HeadSelection, LayersWithoutAttentionAreLeftOut) {
  auto model = small_model();
  for (auto& layer : model.layers) layer.window = 0;
  for (const std::size_t layer : {0, 1, 3}) model.layers[layer].mixer = Mixer::gated_delta;
  const auto selection = select_heads(model, {});
  ASSERT_EQ(selection.layers.size(), 1u);
  EXPECT_THAT(selection.layers.at(2).queries, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(selection.metadata["head_sampling_full_layer_count"], 1);
  HeadFilter sampled;
  sampled.sampling = HeadSampling{.count = 3, .seed = 1};
  EXPECT_EQ(select_heads(model, sampled).layers.at(2).queries.size(), 3u);
  HeadFilter filter;
  filter.layers = {0, 3};
  try {
    select_heads(model, filter);
    FAIL() << "layers without attention were selected";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "capture: the chosen layers have no attention; layers with attention are 2");
  }
}

TEST(HeadSelection, FullAttentionOnlyExcludesSlidingLayers) {
  HeadFilter filter;
  filter.full_attention_only = true;
  filter.heads = {3};
  const auto selection = select_heads(small_model(), filter);
  EXPECT_THAT(selection.eligible_layers, ElementsAre(0, 3));
  EXPECT_THAT(selection.excluded_layers, ElementsAre(1, 2));
  EXPECT_THAT(selection.layers.at(3).keys, ElementsAre(1));
  EXPECT_EQ(selection.metadata["head_sampling_sliding_layer_count"], 2);
  EXPECT_EQ(selection.metadata["head_sampling_full_layer_count"], 2);
  EXPECT_EQ(selection.metadata["head_sampling_sliding_candidates_excluded"], 2);
  EXPECT_EQ(selection.metadata["head_sampling_full_attention_only"], 1);
}

TEST(HeadSelection, DrawEqualsPythonRandomSample) {
  HeadFilter filter;
  filter.sampling = HeadSampling{.count = 5, .seed = 0};
  const auto selection = select_heads(small_model(), filter);
  std::size_t found = 0;
  for (const auto index : PythonRandom(0).sample(16, 5))
    found += selection.layers.at(index / 4).queries.contains(index % 4);
  EXPECT_EQ(found, 5u);
  EXPECT_EQ(selection.metadata["head_sampling_selected_query_heads"], 5);
  filter.sampling->count = 16;
  EXPECT_EQ(select_heads(small_model(), filter).layers.size(), 4u);
}

TEST(HeadSelection, SelectsHeadsGivenAsPairs) {
  HeadFilter filter;
  filter.pairs = {{3, 1}, {0, 2}, {3, 0}, {3, 1}};
  const auto selection = select_heads(small_model(), filter);
  ASSERT_EQ(selection.layers.size(), 2u);
  EXPECT_THAT(selection.layers.at(0).queries, ElementsAre(2));
  EXPECT_THAT(selection.layers.at(0).keys, ElementsAre(1));
  EXPECT_THAT(selection.layers.at(3).queries, ElementsAre(0, 1));
  EXPECT_THAT(selection.eligible_layers, ElementsAre(0, 3));
  filter.pairs = {{3, 4}};
  EXPECT_THAT(complaint(filter), HasSubstr("capture.heads: [3, 4] is not there, the model has "
                                           "layers 0 to 3 and heads 0 to 3"));
}

TEST(HeadSelection, WarnsWhenMoreHeadsAreRequestedThanExist) {
  std::vector<std::string> messages;
  set_log_callback([&](LogLevel, std::string_view message) { messages.emplace_back(message); });
  HeadFilter filter;
  filter.sampling = HeadSampling{.count = 17, .seed = 0};
  EXPECT_EQ(select_heads(small_model(), filter).layers.size(), 4u);
  set_log_callback(nullptr);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0], HasSubstr("17 heads asked for, 16 are there"));
}

TEST(HeadSelection, NamesTheValidRangeOfIndices) {
  HeadFilter filter;
  filter.layers = {0, 4};
  EXPECT_THAT(complaint(filter),
              HasSubstr("capture.layers: 4 is out of range, the model has 0 to 3"));
  filter.layers = {};
  filter.heads = {-1};
  EXPECT_THAT(complaint(filter),
              HasSubstr("capture.heads: -1 is out of range, the model has 0 to 3"));
  filter.heads = {};
  filter.layers = {1, 2};
  filter.full_attention_only = true;
  EXPECT_THAT(complaint(filter), HasSubstr("2 of 2 layers slide"));
}

struct Published {
  std::string folder;
  std::size_t query_heads;  // with files, out of 300 drawn
};

class PublishedModel : public testing::TestWithParam<Published> {};

TEST_P(PublishedModel, GivesThePublishedNumberOfHeads) {
  const auto folder = source_path("../shared/checkpoints/") + GetParam().folder;
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const auto model = parse_model_config(load_config(folder), folder);
  HeadFilter filter;
  filter.sampling = HeadSampling{.count = 300, .seed = 0};
  filter.full_attention_only = true;
  const auto selection = select_heads(model, filter);
  std::size_t queries = 0;
  for (const auto& [layer, heads] : selection.layers) queries += heads.queries.size();
  EXPECT_EQ(queries, GetParam().query_heads);
  EXPECT_EQ(selection.metadata["head_sampling_selected_query_heads"], 300);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedModel,
                         testing::Values(Published{"meta-llama__Llama-3.2-11B-Vision", 239},
                                         Published{"HuggingFaceTB__SmolLM3-3B", 300},
                                         Published{"mistralai__Ministral-3-3B-Instruct-2512", 300},
                                         Published{"Qwen__Qwen3-0.6B", 300}),
                         [](const auto& test) {
                           auto name = test.param.folder.substr(test.param.folder.find("__") + 2);
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

}  // namespace
}  // namespace qkscope
