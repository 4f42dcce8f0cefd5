// What config.json may say, family by family, and what it may not.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "core/error.h"
#include "io/json.h"
#include "model/family.h"
#include "model/model_config.h"

namespace qkscope {
namespace {

Json llama() {
  return Json::parse(
      R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 32, "vocab_size": 50, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false})");
}

Json with(Json config, const std::string& changes) {
  return merge_overrides(std::move(config), Json::parse(changes));
}

std::string complaint(const Json& config) {
  try {
    parse_model_config(config, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "";
}

void expect_complaint(const Json& config, const std::string& part) {
  EXPECT_NE(complaint(config).find(part), std::string::npos) << "found: " << complaint(config);
}

TEST(Config, LlamaIsUnderstood) {
  const auto model = parse_model_config(llama(), "config.json");
  EXPECT_EQ(model.family, "llama");
  EXPECT_EQ(model.d_head, 4);
  EXPECT_EQ(model.heads_per_kv_head(), 2);
  EXPECT_EQ(model.ropes.size(), 1u);
  EXPECT_DOUBLE_EQ(model.attention_scale, 0.5);
  EXPECT_FALSE(model.tied);
}

TEST(Config, WrongValuesAreNamed) {
  EXPECT_EQ(complaint(llama()), "");
  expect_complaint(Json::array(), "expected a JSON object");
  expect_complaint(with(llama(), R"({"model_type": null})"), "'model_type' is missing");
  expect_complaint(with(llama(), R"({"model_type": "mamba"})"),
                   "model_type 'mamba' is not supported; supported are llama");
  expect_complaint(with(llama(), R"({"hidden_size": null})"), "'hidden_size' is missing");
  expect_complaint(with(llama(), R"({"hidden_size": -4})"),
                   "'hidden_size' is -4, expected an integer from 1 to 2147483647");
  expect_complaint(with(llama(), R"({"hidden_size": "16"})"), "'hidden_size' is \"16\"");
  expect_complaint(with(llama(), R"({"hidden_size": 1e300})"),
                   "expected an integer from 1 to 2147483647");
  expect_complaint(with(llama(), R"({"num_key_value_heads": 3})"),
                   "4 query heads cannot share 3 key heads");
  expect_complaint(with(llama(), R"({"hidden_size": 18})"), "not a multiple of 4 heads");
  expect_complaint(with(llama(), R"({"head_dim": 5})"), "even number");
  expect_complaint(with(llama(), R"({"hidden_act": "relu6"})"),
                   "activation 'relu6' is not supported");
  expect_complaint(with(llama(), R"({"tie_word_embeddings": "yes"})"), "expected true or false");
  expect_complaint(with(llama(), R"({"rope_theta": 0})"), "rope_theta");
  expect_complaint(with(llama(), R"({"rope_scaling": 7})"), "expected a JSON object");
  expect_complaint(with(llama(), R"({"quantization_config": {"quant_method": "gptq"}})"),
                   "quantization 'gptq'");
  expect_complaint(
      with(llama(),
           R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})"),
      "with weight_block_size");
  expect_complaint(with(llama(), R"({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}})"),
                   "one map per layer type");
}

// Settings from which vectors would come out that are no numbers, or a run that fills the memory.
TEST(Config, SettingsOutOfRangeAreNamed) {
  const auto expect = [](const std::string& change, const std::string& word) {
    expect_complaint(with(llama(), change), word);
  };
  expect(R"({"rms_norm_eps": -1e-5})", "rms_norm_eps");
  expect(R"({"rope_theta": 1e300})", "rope_theta");
  expect(R"({"partial_rotary_factor": 1e300})", "partial_rotary_factor");
  expect(R"({"num_hidden_layers": 1000000000})", "num_hidden_layers");
  expect(R"({"hidden_size": 2000000000, "head_dim": 8})", "hidden_size");
  expect(R"({"intermediate_size": 2000000000})", "intermediate_size");
  expect(R"({"num_attention_heads": 65536, "num_key_value_heads": 1, "head_dim": 65536})",
         "head_dim");
  for (const auto* window : {"2147483648", "4294967296", "-1", "0"})
    expect(fmt::format(R"({{"model_type": "mistral", "sliding_window": {}}})", window),
           "sliding_window");
  const auto rope = [&](const std::string& settings, const std::string& word) {
    expect(R"({"rope_scaling": {)" + settings + "}}", word);
  };
  rope(R"("rope_type": "linear", "factor": 1e-300)", "factor");
  rope(R"("rope_type": "linear", "factor": 0)", "factor");
  rope(R"("rope_type": "yarn", "factor": 2, "beta_fast": 0)", "beta_fast");
  rope(R"("rope_type": "yarn", "factor": 2, "beta_slow": 0)", "beta_slow");
  rope(R"("rope_type": "yarn", "factor": 2, "attention_factor": -1)", "attention_factor");
  rope(R"("rope_type": "yarn", "factor": 2, "mscale": -1e9)", "mscale");
  rope(R"("rope_type": "longrope", "short_factor": [0, 1], "long_factor": [1, 1])", "short_factor");
  rope(R"("rope_type": "longrope", "short_factor": [1, 1], "long_factor": [1, -1])", "long_factor");
}

TEST(Config, OverridesMergeKeyByKey) {
  const auto config = with(llama(), R"({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}})");
  const auto model = parse_model_config(
      with(config, R"({"rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32}})"),
      "config.json");
  EXPECT_EQ(model.ropes[0].type, RopeType::yarn);
  EXPECT_DOUBLE_EQ(model.ropes[0].factor, 4.0);
  EXPECT_EQ(model.ropes[0].original_max, 32);
}

TEST(Config, SmolLm3NopeLayers) {
  const auto smollm3 = with(
      llama(), R"({"model_type": "smollm3", "num_hidden_layers": 8, "tie_word_embeddings": null})");
  const auto every_fourth = parse_model_config(smollm3, "config.json");
  EXPECT_TRUE(every_fourth.tied);
  for (std::int64_t i = 0; i < 8; ++i) EXPECT_EQ(every_fourth.rope(i) == nullptr, i % 4 == 3) << i;
  const auto listed = parse_model_config(
      with(smollm3, R"({"no_rope_layers": [0, 1, 1, 1, 1, 1, 1, 0]})"), "config.json");
  EXPECT_EQ(listed.rope(0), nullptr);
  EXPECT_NE(listed.rope(3), nullptr);
  EXPECT_EQ(listed.rope(7), nullptr);
  expect_complaint(with(smollm3, R"({"no_rope_layers": [1, 0]})"),
                   "no_rope_layers has 2 entries, expected 8");
}

TEST(Config, SlidingWindows) {
  const auto mistral = with(llama(), R"({"model_type": "mistral", "sliding_window": 7})");
  for (const auto& layer : parse_model_config(mistral, "c").layers) EXPECT_EQ(layer.window, 7);
  auto no_window = mistral;
  no_window["sliding_window"] = nullptr;
  for (const auto& layer : parse_model_config(no_window, "c").layers) EXPECT_EQ(layer.window, 0);
  no_window.erase("sliding_window");
  for (const auto& layer : parse_model_config(no_window, "c").layers) EXPECT_EQ(layer.window, 4096);

  const auto ministral = with(llama(), R"({"model_type": "ministral", "sliding_window": 7})");
  for (const auto& layer : parse_model_config(ministral, "c").layers) EXPECT_EQ(layer.window, 7);
  const auto typed =
      with(ministral,
           R"({"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]})");
  EXPECT_EQ(parse_model_config(typed, "c").layers[0].window, 0);
  EXPECT_EQ(parse_model_config(typed, "c").layers[1].window, 7);
  expect_complaint(with(typed, R"({"sliding_window": null})"), "no sliding_window is set");
  expect_complaint(with(typed, R"({"layer_types": ["full_attention"]})"),
                   "layer_types has 1 entries, expected 2");

  const auto qwen =
      with(llama(), R"({"model_type": "qwen2", "sliding_window": 9, "max_window_layers": 1})");
  for (const auto& layer : parse_model_config(qwen, "c").layers) EXPECT_EQ(layer.window, 0);
  const auto sliding = parse_model_config(with(qwen, R"({"use_sliding_window": true})"), "c");
  EXPECT_EQ(sliding.layers[0].window, 0);
  EXPECT_EQ(sliding.layers[1].window, 9);
  expect_complaint(with(qwen, R"({"layer_types": ["full_attention", "linear_attention"]})"),
                   "layer_types[1] is 'linear_attention'");
}

TEST(Config, MllamaCrossLayersAreChecked) {
  const auto mllama =
      with(llama(), R"({"model_type": "mllama_text_model", "cross_attention_layers": [1]})");
  const auto model = parse_model_config(mllama, "c");
  EXPECT_EQ(model.embedding_rows, 58);
  EXPECT_FALSE(model.layers[0].cross_attention);
  EXPECT_TRUE(model.layers[1].cross_attention);
  expect_complaint(with(mllama, R"({"cross_attention_layers": [2]})"),
                   "names layer 2, the model has layers 0 to 1");
}

}  // namespace
}  // namespace qkscope
