// Valid and invalid config.json files, family by family.
#include <cmath>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/io/json.h"
#include "engine/model/model_config.h"
#include "input/checkpoint/checkpoint.h"
#include "paths.h"

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

std::string error_message(const Json& config) {
  try {
    parse_model_config(config, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "";
}

void expect_error(const Json& config, const std::string& part) {
  EXPECT_NE(error_message(config).find(part), std::string::npos)
      << "found: " << error_message(config);
}

TEST(Config, LlamaFieldsAreRead) {
  const auto model = parse_model_config(llama(), "config.json");
  EXPECT_EQ(model.family, "llama");
  EXPECT_EQ(model.d_head, 4);
  EXPECT_EQ(model.heads_per_kv_head(), 2);
  EXPECT_EQ(model.ropes.size(), 1u);
  EXPECT_DOUBLE_EQ(model.attention_scale, 0.5);
  EXPECT_FALSE(model.tied);
}

TEST(Config, InvalidValuesAreNamedInTheError) {
  EXPECT_EQ(error_message(llama()), "");
  expect_error(Json::array(), "expected a JSON object");
  expect_error(with(llama(), R"({"model_type": null})"), "'model_type' is missing");
  expect_error(with(llama(), R"({"model_type": "mamba"})"),
               "model_type 'mamba' is not supported; supported are llama");
  expect_error(with(llama(), R"({"hidden_size": null})"), "'hidden_size' is missing");
  expect_error(with(llama(), R"({"hidden_size": -4})"),
               "'hidden_size' is -4, expected an integer from 1 to 2147483647");
  expect_error(with(llama(), R"({"hidden_size": "16"})"), "'hidden_size' is \"16\"");
  expect_error(with(llama(), R"({"hidden_size": 1e300})"),
               "expected an integer from 1 to 2147483647");
  expect_error(with(llama(), R"({"num_key_value_heads": 3})"),
               "4 query heads cannot share 3 key heads");
  expect_error(with(llama(), R"({"hidden_size": 18})"), "not a multiple of 4 heads");
  expect_error(with(llama(), R"({"head_dim": 5})"), "even number");
  expect_error(with(llama(), R"({"hidden_act": "relu6"})"), "activation 'relu6' is not supported");
  expect_error(with(llama(), R"({"tie_word_embeddings": "yes"})"), "expected true or false");
  expect_error(with(llama(), R"({"rope_theta": 0})"), "rope_theta");
  expect_error(with(llama(), R"({"rope_scaling": 7})"), "expected a JSON object");
  expect_error(with(llama(), R"({"quantization_config": {"quant_method": "gptq"}})"),
               "quantization 'gptq'");
  expect_error(
      with(llama(),
           R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 0]}})"),
      "'weight_block_size' is [128,0], expected numbers of rows and columns");
  expect_error(with(llama(), R"({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}})"),
               "one map per layer type");
}

// Settings that would give NaN or exhaust memory.
TEST(Config, OutOfRangeSettingsAreNamedInTheError) {
  const auto expect = [](const std::string& change, const std::string& word) {
    expect_error(with(llama(), change), word);
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

TEST(Config, SmolLm3ReadsNopeLayersInBothSpellings) {
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
  expect_error(with(smollm3, R"({"no_rope_layers": [1, 0]})"),
               "no_rope_layers has 2 entries, expected 8");
}

TEST(Config, SlidingWindowsFollowTheRulesOfEachFamily) {
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
  expect_error(with(typed, R"({"sliding_window": null})"), "no sliding_window is set");
  expect_error(with(typed, R"({"layer_types": ["full_attention"]})"),
               "layer_types has 1 entries, expected 2");

  const auto qwen =
      with(llama(), R"({"model_type": "qwen2", "sliding_window": 9, "max_window_layers": 1})");
  for (const auto& layer : parse_model_config(qwen, "c").layers) EXPECT_EQ(layer.window, 0);
  const auto sliding = parse_model_config(with(qwen, R"({"use_sliding_window": true})"), "c");
  EXPECT_EQ(sliding.layers[0].window, 0);
  EXPECT_EQ(sliding.layers[1].window, 9);
  expect_error(with(qwen, R"({"layer_types": ["full_attention", "linear_attention"]})"),
               "layer_types[1] is 'linear_attention'");
}

TEST(Config, UpperLayersOfQwen3Slide) {
  const auto qwen3 = with(llama(), R"({"model_type": "qwen3", "use_sliding_window": true,
                                       "sliding_window": 9, "max_window_layers": 1})");
  const auto windows = parse_model_config(qwen3, "c");
  EXPECT_EQ(windows.layers[0].window, 0);
  EXPECT_EQ(windows.layers[1].window, 9);
}

TEST(Config, MllamaRejectsInvalidCrossAttentionLayers) {
  const auto mllama =
      with(llama(), R"({"model_type": "mllama_text_model", "cross_attention_layers": [1]})");
  const auto model = parse_model_config(mllama, "c");
  EXPECT_EQ(model.embedding_rows, 58);
  EXPECT_FALSE(model.layers[0].cross_attention);
  EXPECT_TRUE(model.layers[1].cross_attention);
  expect_error(with(mllama, R"({"cross_attention_layers": [2]})"),
               "names layer 2, the model has layers 0 to 1");
}

TEST(Config, SmolLm3SlidesOnNopeLayersOnly) {
  const auto smollm3 = with(llama(), R"({"model_type": "smollm3", "no_rope_layer_interval": 2,
                                         "use_sliding_window": true, "sliding_window": 9})");
  const auto model = parse_model_config(smollm3, "c");
  EXPECT_EQ(model.layers[0].window, 0);
  EXPECT_EQ(model.layers[1].window, 9);
  const auto unused = parse_model_config(with(smollm3, R"({"use_sliding_window": false})"), "c");
  EXPECT_EQ(unused.layers[1].window, 0);
}

TEST(Config, GptNeoxReadsItsOldKeyNames) {
  const auto neox = with(llama(), R"({"model_type": "gpt_neox", "num_key_value_heads": null,
    "rope_theta": null, "rotary_pct": 0.5, "rotary_emb_base": 5000, "layer_norm_eps": 1e-3,
    "hidden_act": "gelu_fast"})");
  const auto model = parse_model_config(neox, "c");
  EXPECT_EQ(model.norm, NormKind::layer);
  EXPECT_DOUBLE_EQ(model.norm_eps, 1e-3);
  EXPECT_EQ(model.ropes[0].dim, 2);
  EXPECT_DOUBLE_EQ(model.ropes[0].theta, 5000.0);
  EXPECT_EQ(model.activation, Activation::gelu_tanh);
  EXPECT_TRUE(model.parallel_residual && model.qkv_bias && model.output_bias && model.mlp_bias);
  EXPECT_FALSE(model.gated_mlp());
  EXPECT_EQ(model.n_kv_heads, 4);
  EXPECT_FALSE(
      parse_model_config(with(neox, R"({"use_parallel_residual": false})"), "c").parallel_residual);
}

TEST(Config, Gpt2ReadsItsOwnKeyNamesAndHasDefaults) {
  const auto model = parse_model_config(Json::parse(R"({"model_type": "gpt2", "n_embd": 48,
    "n_head": 4, "n_layer": 3, "n_positions": 64, "scale_attn_by_inverse_layer_idx": true})"),
                                        "c");
  EXPECT_EQ(model.d_model, 48);
  EXPECT_EQ(model.d_mlp, 192);
  EXPECT_EQ(model.n_kv_heads, 4);
  EXPECT_EQ(model.vocab_size, 50257);
  EXPECT_EQ(model.max_positions, 64);
  EXPECT_TRUE(model.learned_positions() && model.tied && model.ropes.empty());
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(model.rope(i), nullptr);
    EXPECT_DOUBLE_EQ(model.score_scale(i), 1.0 / std::sqrt(12.0) / static_cast<double>(i + 1));
  }
  EXPECT_EQ(parse_model_config(Json::parse(R"({"model_type": "gpt2"})"), "c").n_layers, 12);
  expect_error(Json::parse(R"({"model_type": "gpt2", "n_embd": 50, "n_head": 4})"),
               "n_embd 50 is not a multiple of 4 heads");
  expect_error(Json::parse(R"({"model_type": "gpt2", "n_layer": 100000})"), "at most 4096");
  expect_error(Json::parse(R"({"model_type": "gpt2", "add_cross_attention": true})"),
               "add_cross_attention is not supported");
}

TEST(Config, OlmoGenerationsDifferInNormsAndRope) {
  const auto olmo =
      parse_model_config(with(llama(), R"({"model_type": "olmo", "clip_qkv": 8.0})"), "c");
  EXPECT_EQ(olmo.norm, NormKind::layer);
  EXPECT_FALSE(olmo.norm_weight);
  EXPECT_DOUBLE_EQ(olmo.norm_eps, 1e-5);
  EXPECT_DOUBLE_EQ(olmo.qkv_clip, 8.0);
  expect_error(with(llama(), R"({"model_type": "olmo", "clip_qkv": -8.0})"), "'clip_qkv' is -8");
  EXPECT_EQ(parse_model_config(with(llama(), R"({"model_type": "olmo"})"), "c").qkv_clip, 0.0);

  const auto olmo2 = parse_model_config(with(llama(), R"({"model_type": "olmo2"})"), "c");
  EXPECT_TRUE(olmo2.qk_norm && olmo2.qk_norm_whole && olmo2.names.input_norm.empty());

  const auto olmo3 =
      with(llama(), R"({"model_type": "olmo3", "num_hidden_layers": 8, "sliding_window": 5,
    "rope_theta": 7e5, "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
    "original_max_position_embeddings": 16}})");
  const auto model = parse_model_config(olmo3, "c");
  for (std::int64_t i = 0; i < 8; ++i) {
    const bool full = i % 4 == 3;
    EXPECT_EQ(model.layers[static_cast<std::size_t>(i)].window, full ? 0 : 5);
    EXPECT_EQ(model.rope(i)->type, full ? RopeType::yarn : RopeType::standard);
    EXPECT_DOUBLE_EQ(model.rope(i)->theta, 7e5);
  }
}

TEST(Config, Gemma2NullSwitchesSoftCapsOff) {
  const auto gemma = Json::parse(R"({"model_type": "gemma2", "num_hidden_layers": 3})");
  const auto model = parse_model_config(gemma, "c");
  EXPECT_DOUBLE_EQ(model.attention_softcap, 50.0);
  EXPECT_DOUBLE_EQ(model.logit_softcap, 30.0);
  EXPECT_EQ(model.layers[0].window, 4096);
  EXPECT_EQ(model.layers[1].window, 0);
  EXPECT_EQ(model.layers[2].window, 4096);
  auto off = gemma;
  off["attn_logit_softcapping"] = off["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(parse_model_config(off, "c").attention_softcap, 0.0);
  EXPECT_EQ(parse_model_config(off, "c").logit_softcap, 0.0);
  expect_error(with(gemma, R"({"attn_logit_softcapping": 0})"), "'attn_logit_softcapping' is 0");
}

TEST(Config, GraniteReadsItsScaleFactors) {
  const auto model = parse_model_config(
      with(llama(),
           R"({"model_type": "granite", "embedding_multiplier": 12, "attention_multiplier": 0.25,
                        "residual_multiplier": 0.22, "logits_scaling": 8})"),
      "c");
  EXPECT_DOUBLE_EQ(model.embedding_scale, 12.0);
  EXPECT_DOUBLE_EQ(model.attention_scale, 0.25);
  EXPECT_DOUBLE_EQ(model.residual_scale, 0.22);
  EXPECT_DOUBLE_EQ(model.logit_scale, 0.125);
}

TEST(Config, PhiLongRopeIsReadUnderThreeNames) {
  for (const auto* name : {"longrope", "su", "yarn"}) {
    auto phi = with(llama(), R"({"model_type": "phi3", "original_max_position_embeddings": 32,
                                 "rope_scaling": {"short_factor": [1, 1], "long_factor": [2, 3]}})");
    phi["rope_scaling"]["type"] = name;
    const auto model = parse_model_config(phi, "c");
    EXPECT_EQ(model.ropes[0].type, RopeType::longrope) << name;
    EXPECT_EQ(model.ropes[0].original_max, 32);
  }
}

TEST(Config, XieluIsRejectedInGatedMlps) {
  const auto apertus = with(llama(), R"({"model_type": "apertus", "hidden_act": "xielu",
                                         "rope_scaling": {"rope_type": "linear", "factor": 2}})");
  EXPECT_EQ(parse_model_config(apertus, "c").activation, Activation::xielu);
  expect_error(with(llama(), R"({"hidden_act": "xielu"})"), "a llama model has one");
  expect_error(with(llama(), R"({"model_type": "apertus"})"), "needs its RoPE parameters");
}

TEST(Config, Qwen3MoeReadsItsExperts) {
  const auto qwen = with(llama(), R"({"model_type": "qwen3_moe", "num_hidden_layers": 5,
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "decoder_sparse_step": 2, "mlp_only_layers": [3]})");
  const auto model = parse_model_config(qwen, "c");
  EXPECT_EQ(model.experts.count, 6);
  EXPECT_EQ(model.experts.per_token, 2);
  EXPECT_EQ(model.experts.d_mlp, 24);
  EXPECT_FALSE(model.experts.normalized);
  EXPECT_TRUE(model.qk_norm);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(model.layers[i].experts, i == 1) << i;
  const auto newer = with(qwen, R"({"num_experts": null, "num_local_experts": 7})");
  EXPECT_EQ(parse_model_config(newer, "c").experts.count, 7);
  EXPECT_TRUE(
      parse_model_config(with(qwen, R"({"norm_topk_prob": true})"), "c").experts.normalized);
  const auto slides = with(qwen, R"({"use_sliding_window": true, "sliding_window": 9})");
  EXPECT_EQ(parse_model_config(slides, "c").layers[4].window, 9);
  expect_error(with(qwen, R"({"num_experts_per_tok": 9})"), "at most the 6 experts of a layer");
  expect_error(with(qwen, R"({"num_experts": 100000})"), "at most 4096 experts");
  expect_error(with(qwen, R"({"moe_intermediate_size": 16000000})"), "number of experts times");
}

TEST(Config, MixtralReadsItsExperts) {
  const auto model = parse_model_config(with(llama(), R"({"model_type": "mixtral",
                                                          "sliding_window": null})"),
                                        "c");
  EXPECT_EQ(model.experts.count, 8);
  EXPECT_EQ(model.experts.per_token, 2);
  EXPECT_EQ(model.experts.d_mlp, model.d_mlp);
  EXPECT_TRUE(model.experts.normalized);
  for (const auto& layer : model.layers) EXPECT_TRUE(layer.experts && layer.window == 0);
}

TEST(Config, GptOssReadsThePublishedConfig) {
  const auto oss = with(llama(), R"({"model_type": "gpt_oss", "num_hidden_layers": 4,
    "num_local_experts": 32, "head_dim": 8, "sliding_window": 128, "swiglu_limit": 7.0,
    "quantization_config": {"quant_method": "mxfp4"}, "rope_theta": 150000,
    "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "rope_type": "yarn",
                     "original_max_position_embeddings": 4096, "truncate": false}})");
  const auto model = parse_model_config(oss, "c");
  EXPECT_EQ(model.experts.count, 32);
  EXPECT_EQ(model.experts.per_token, 4);
  EXPECT_TRUE(model.experts.normalized && model.experts.bias && model.experts.router_bias);
  EXPECT_TRUE(model.has_sinks() && model.qkv_bias && model.output_bias);
  EXPECT_EQ(model.activation, Activation::clamped_swiglu);
  EXPECT_FLOAT_EQ(model.swiglu.alpha, 1.702f);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(model.layers[i].window, i % 2 == 0 ? 128 : 0);
  // The default RoPE is the published one.
  const auto plain = parse_model_config(with(oss, R"({"rope_scaling": null})"), "c");
  for (const auto& m : {model, plain}) {
    EXPECT_EQ(m.ropes[0].type, RopeType::yarn);
    EXPECT_DOUBLE_EQ(m.ropes[0].factor, 32.0);
    EXPECT_EQ(m.ropes[0].original_max, 4096);
    EXPECT_FALSE(m.ropes[0].truncate);
  }
  expect_error(with(llama(), R"({"quantization_config": {"quant_method": "mxfp4"}})"),
               "quantization 'mxfp4' is not supported");
}

// Layers with full attention of these families have no position encoding.
TEST(Config, FullLayersHaveNoRopeInMixedFamilies) {
  for (const auto* family : {"cohere2", "exaone4", "afmoe"}) {
    const auto mixed = with(llama(), fmt::format(R"({{"model_type": "{}", "num_hidden_layers": 5,
                                                      "sliding_window": 7}})",
                                                 family));
    const auto model = parse_model_config(mixed, "c");
    for (std::int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(model.rope(i) == nullptr, i == 3) << family;
      EXPECT_EQ(model.layers[static_cast<std::size_t>(i)].window, i == 3 ? 0 : 7) << family;
    }
    expect_error(with(mixed, R"({"layer_types": ["full_attention"]})"),
                 "layer_types has 1 entries");
  }
  const auto published = with(llama(), R"({"model_type": "exaone4", "sliding_window": 7,
    "sliding_window_pattern": "LG", "layer_types": ["sliding_attention", "full_attention"]})");
  EXPECT_EQ(parse_model_config(published, "c").rope(1), nullptr);
  auto no_window = published;
  no_window["sliding_window"] = nullptr;
  expect_error(no_window, "no sliding_window is set");
  no_window["layer_types"] = nullptr;
  EXPECT_NE(parse_model_config(no_window, "c").rope(1), nullptr);
  const auto cohere = parse_model_config(with(llama(), R"({"model_type": "cohere2"})"), "c");
  EXPECT_TRUE(cohere.parallel_residual && cohere.rope_interleaved);
  EXPECT_DOUBLE_EQ(cohere.logit_scale, 0.0625);
  EXPECT_EQ(cohere.layers[0].window, 4096);
}

TEST(Config, Glm4MoeReadsRouterGroupsAndSharedExperts) {
  const auto glm = with(llama(), R"({"model_type": "glm4_moe", "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 2, "topk_group": 1,
    "n_shared_experts": 2, "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1})");
  const auto model = parse_model_config(glm, "c");
  EXPECT_TRUE(model.experts.sigmoid && model.experts.normalized && !model.qk_norm);
  EXPECT_EQ(model.experts.shared_d_mlp, 48);
  EXPECT_DOUBLE_EQ(model.experts.weight_scale, 2.5);
  EXPECT_TRUE(!model.layers[0].experts && model.layers[1].experts);
  EXPECT_EQ(model.ropes[0].dim, 2);
  EXPECT_EQ(model.names.unused, (std::vector<std::string>{"layers.2."}));
  expect_error(with(glm, R"({"n_group": 3})"), "n_group");
  expect_error(with(glm, R"({"n_group": 8})"), "n_group");
  expect_error(with(glm, R"({"topk_group": 3})"), "topk_group");
  expect_error(with(glm, R"({"n_group": 4, "topk_group": null, "num_experts_per_tok": 3})"),
               "'topk_group' is null, expected groups with at least num_experts_per_tok experts");
  expect_error(with(llama(), R"({"model_type": "olmoe", "num_experts": 4})"),
               "'num_experts_per_tok' is absent, expected at most the 4 experts of a layer");
}

TEST(Config, DefaultsOfTheFurtherFamilies) {
  const auto read = [](const std::string& changes) {
    return parse_model_config(with(llama(), changes), "c");
  };
  const auto olmoe = read(R"({"model_type": "olmoe"})");
  EXPECT_TRUE(olmoe.qk_norm_whole && !olmoe.experts.normalized);
  EXPECT_EQ(olmoe.experts.d_mlp, olmoe.d_mlp);
  expect_error(with(llama(), R"({"model_type": "olmoe", "clip_qkv": 8})"), "'clip_qkv' is 8");

  const auto seed = read(R"({"model_type": "seed_oss"})");
  EXPECT_TRUE(seed.qkv_bias && !seed.output_bias && seed.d_head == 128);
  auto null_head = with(llama(), R"({"model_type": "seed_oss"})");
  null_head["head_dim"] = nullptr;
  EXPECT_EQ(parse_model_config(null_head, "c").d_head, 4);

  const auto hunyuan = read(R"({"model_type": "hunyuan_v1_dense", "head_dim": 8,
    "rope_scaling": {"type": "dynamic", "alpha": 16.0, "factor": 1.0}})");
  EXPECT_TRUE(hunyuan.rotated_qk_norm && hunyuan.ropes[0].type == RopeType::standard);
  EXPECT_NEAR(hunyuan.ropes[0].theta, 10000.0 * std::pow(16.0, 8.0 / 6.0), 1e-6);

  const auto nanochat = read(R"({"model_type": "nanochat"})");
  EXPECT_TRUE(nanochat.ropes[0].reversed && nanochat.embedding_norm && !nanochat.norm_weight);
  EXPECT_DOUBLE_EQ(nanochat.logit_softcap, 15.0);

  const auto ernie = read(R"({"model_type": "ernie4_5_moe", "num_hidden_layers": 6,
    "moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 8, "moe_layer_interval": 2,
    "moe_layer_end_index": 4})");
  EXPECT_TRUE(ernie.experts.count == 6 && ernie.experts.per_token == 2 && ernie.rope_interleaved);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(ernie.layers[i].experts, i == 1 || i == 3) << i;
  expect_error(with(llama(), R"({"model_type": "ernie4_5_moe", "use_bias": true})"), "use_bias");

  const auto minimax = read(R"({"model_type": "minimax_m2", "head_dim": 8, "rotary_dim": 4})");
  EXPECT_TRUE(minimax.ropes[0].dim == 4 && minimax.experts.sigmoid && minimax.experts.normalized);

  const auto afmoe = read(R"({"model_type": "afmoe", "mup_enabled": true, "route_scale": 2.0})");
  EXPECT_TRUE(afmoe.has_attention_gate() && afmoe.layers[1].experts && !afmoe.layers[0].experts);
  EXPECT_DOUBLE_EQ(afmoe.embedding_scale, 4.0);
  EXPECT_EQ(afmoe.layers[0].window, 1024);
}

// Values of transformers' configuration classes; a family without an own value has as many key
// heads as query heads.
TEST(Config, MissingNumberOfKeyHeadsHasTheDefaultOfTheFamily) {
  auto base = with(llama(), R"({"num_attention_heads": 8, "head_dim": 8, "hidden_size": 64})");
  base.erase("num_key_value_heads");
  const auto expect = [&](std::int64_t expected, std::initializer_list<const char*> families) {
    for (const std::string family : families) {
      auto config = base;
      config["model_type"] = family;
      EXPECT_EQ(parse_model_config(config, "config.json").n_kv_heads, expected) << family;
    }
  };
  expect(2, {"glm", "glm4", "starcoder2", "ernie4_5", "qwen3_next"});
  expect(4, {"smollm3", "qwen3_moe", "ernie4_5_moe", "qwen3_5_text"});
  expect(8, {"mistral", "ministral", "mixtral", "gpt_oss", "glm4_moe", "minimax_m2", "llama4_text",
             "seed_oss"});
  base["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  expect(8, {"ministral3"});
  base["num_attention_heads"] = 4;
  expect(4, {"llama", "olmo2", "granite", "phi3", "afmoe", "hunyuan_v1_dense"});
}

TEST(Config, LatentAttentionOfDeepseek) {
  const auto sizes = with(llama(), R"({"num_key_value_heads": 4, "head_dim": 6,
    "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 8, "kv_lora_rank": 12,
    "q_lora_rank": 20, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1})");
  const auto v3 = with(sizes, R"({"model_type": "deepseek_v3", "rope_scaling": {"type": "yarn",
    "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})");
  const auto model = parse_model_config(v3, "c");
  EXPECT_TRUE(model.has_latent_attention() && model.rope_interleaved && model.experts.sigmoid);
  EXPECT_TRUE(model.d_head == 16 && model.d_value() == 8 && model.latent.q_rank == 20);
  EXPECT_TRUE(model.ropes[0].dim == 6 && model.ropes[0].begin == 10);
  const double mscale = 0.1 * std::log(40.0) + 1.0;
  EXPECT_DOUBLE_EQ(model.attention_scale, mscale * mscale / 4.0);
  EXPECT_DOUBLE_EQ(model.experts.weight_scale, 2.5);
  EXPECT_TRUE(model.experts.normalized && model.experts.shared_d_mlp == 16);
  EXPECT_TRUE(!model.layers[0].experts && model.layers[1].experts);
  EXPECT_EQ(model.names.unused, (std::vector<std::string>{"layers.2."}));
  EXPECT_TRUE(
      parse_model_config(with(v3, R"({"num_nextn_predict_layers": 0})"), "c").names.unused.empty());
  auto plain = with(v3, R"({"rope_scaling": null, "rope_interleave": false})");
  plain["q_lora_rank"] = nullptr;  // merge_overrides() removes null values
  const auto half = parse_model_config(plain, "c");
  EXPECT_TRUE(half.latent.q_rank == 0 && !half.rope_interleaved && !half.rope_sorts_pairs);
  EXPECT_DOUBLE_EQ(half.attention_scale, 0.25);
  expect_error(with(v3, R"({"num_key_value_heads": 2})"), "'num_key_value_heads' is 2");
  expect_error(with(v3, R"({"scoring_func": "softmax"})"), "'scoring_func' is \"softmax\"");
  expect_error(with(v3, R"({"topk_method": "greedy"})"), "'topk_method' is \"greedy\"");
  expect_error(with(v3, R"({"partial_rotary_factor": 0.5})"), "'partial_rotary_factor' is 0.5");
  expect_error(with(v3, R"({"kv_lora_rank": 0})"), "kv_lora_rank");
  expect_error(with(v3, R"({"kv_lora_rank": 2000000000})"), "kv_lora_rank is 2000000000");
  expect_error(with(v3, R"({"qk_rope_head_dim": 5})"), "RoPE turns 5 of 15 head dimensions");

  const auto v2 = with(sizes, R"({"model_type": "deepseek_v2"})");
  const auto greedy = parse_model_config(v2, "c");
  EXPECT_TRUE(greedy.rotated_pairs_interleaved() && !greedy.experts.sigmoid);
  EXPECT_EQ(greedy.experts.groups, 1);
  EXPECT_EQ(greedy.experts.shared_d_mlp, 32);
  const auto limited =
      parse_model_config(with(v2, R"({"topk_method": "group_limited_greedy"})"), "c");
  EXPECT_TRUE(limited.experts.group_maximum && limited.experts.chosen_groups == 2);
  expect_error(with(v2, R"({"topk_method": "noaux_tc"})"), "'topk_method' is \"noaux_tc\"");
  expect_error(with(v2, R"({"norm_topk_prob": true})"), "'norm_topk_prob' is true");
  expect_error(with(v2, R"({"mlp_bias": true})"), "'mlp_bias' is true");
  expect_error(with(v2, R"({"num_experts_per_tok": null})"), "num_experts_per_tok");
}

TEST(Config, Llama4AlternatesChunksAndNope) {
  const auto text = with(llama(), R"({"model_type": "llama4_text", "num_hidden_layers": 8,
    "intermediate_size_mlp": 48, "num_local_experts": 4, "interleave_moe_layer_step": 2,
    "attention_chunk_size": 8, "floor_scale": 4, "attn_scale": 0.2, "no_rope_layers": []})");
  const auto model = parse_model_config(text, "c");
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(model.layers[i].rope, i % 4 == 3 ? -1 : 0) << i;
    EXPECT_EQ(model.layers[i].chunk, i % 4 == 3 ? 0 : 8) << i;
    EXPECT_EQ(model.layers[i].experts, i % 2 == 1) << i;
  }
  EXPECT_TRUE(model.d_head == 128 && model.d_mlp == 48 && model.experts.d_mlp == 32);
  EXPECT_TRUE(model.experts.shared_d_mlp == 32 && model.experts.per_token == 1);
  EXPECT_TRUE(model.experts.scales_input && model.rotated_qk_norm && model.rope_interleaved);
  ASSERT_TRUE(model.query_scaling && model.query_scaling->without_rope);
  EXPECT_DOUBLE_EQ(model.query_scaling->beta, 0.2);
  EXPECT_EQ(model.names.down, "feed_forward.down_proj");
  const auto listed = parse_model_config(
      with(text, R"({"num_hidden_layers": 2, "no_rope_layers": [0, 1], "moe_layers": [0],
        "layer_types": ["chunked_attention", "full_attention"], "use_qk_norm": false,
        "attn_temperature_tuning": false})"),
      "c");
  EXPECT_TRUE(listed.layers[0].rope == -1 && listed.layers[0].chunk == 8);
  EXPECT_TRUE(listed.layers[1].rope == 0 && listed.layers[1].chunk == 0);
  EXPECT_TRUE(listed.layers[0].experts && !listed.layers[1].experts);
  EXPECT_TRUE(!listed.rotated_qk_norm && !listed.query_scaling);
  const auto number = with(text, R"({"attn_temperature_tuning": 4})");
  EXPECT_TRUE(parse_model_config(number, "c").query_scaling.has_value());
  auto no_chunk = text;
  no_chunk["attention_chunk_size"] = nullptr;
  expect_error(no_chunk, "'attention_chunk_size' is null, expected a positive integer");
  expect_error(with(text, R"({"layer_types": ["full_attention"]})"), "layer_types has 1 entries");
  expect_error(with(text, R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})"),
               "expected full_attention or chunked_attention");
  expect_error(with(text, R"({"floor_scale": 0})"), "'floor_scale' is 0");
  expect_error(with(text, R"({"num_experts_per_tok": 5})"), "at most the 4 experts");
}

TEST(Config, Gemma4HasTheDefaultsOfTransformers) {
  const auto model = parse_model_config(Json::parse(R"({"model_type": "gemma4_text"})"), "c");
  EXPECT_TRUE(model.n_layers == 30 && model.d_model == 2304 && model.d_mlp == 9216);
  EXPECT_TRUE(model.n_heads == 8 && model.n_kv_heads == 4 && model.d_head == 256);
  EXPECT_TRUE(model.per_layer.width == 256 && model.per_layer.vocab_size == 262144);
  EXPECT_TRUE(model.tied && model.qk_norm && model.v_norm && !model.norm_adds_one);
  EXPECT_EQ(model.attention_scale, 1.0);
  for (std::int64_t i = 0; i < 30; ++i) {
    const bool full = i % 6 == 5;
    EXPECT_EQ(model.layer(i).window, full ? 0 : 512) << i;
    EXPECT_EQ(model.d_head_of(model.layer(i)), full ? 512 : 256) << i;
    EXPECT_EQ(model.rope(i)->type, full ? RopeType::proportional : RopeType::standard) << i;
    EXPECT_FALSE(model.layer(i).shares_kv() || model.layer(i).v_from_k);
  }
  EXPECT_EQ(model.rope(5)->theta, 1e6);
  EXPECT_TRUE(model.rope(5)->dim == 512 && model.rope(5)->rotated_pairs == 64);
}

TEST(Config, Gemma4LayersDifferInHeadsAndShareKeys) {
  const auto base = with(llama(), R"({"model_type": "gemma4_text", "num_hidden_layers": 4,
    "head_dim": 8, "global_head_dim": 16, "num_global_key_value_heads": 1, "sliding_window": 9,
    "vocab_size_per_layer_input": 50, "use_bidirectional_attention": "vision", "layer_types":
    ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]})");
  const auto read = [&](const std::string& changes) {
    return parse_model_config(with(base, changes), "c");
  };
  const auto plain = read("{}");
  EXPECT_EQ(plain.layer(3).window, 0);  // the last layer is full, whatever its type is
  EXPECT_TRUE(plain.layer(1).d_head == 16 && plain.layer(1).n_kv_heads == 0);
  const auto equal = read(R"({"attention_k_eq_v": true})");
  EXPECT_TRUE(equal.layer(1).n_kv_heads == 1 && equal.layer(1).v_from_k);
  EXPECT_TRUE(equal.layer(0).d_head == 0 && !equal.layer(0).v_from_k);
  EXPECT_FALSE(equal.has_equal_heads());
  EXPECT_TRUE(read(R"({"global_head_dim": 8})").has_equal_heads());
  const auto shared = read(R"({"num_kv_shared_layers": 2, "use_double_wide_mlp": true})");
  EXPECT_TRUE(shared.layer(2).kv_layer == 0 && shared.layer(3).kv_layer == 1);
  EXPECT_TRUE(shared.layer(3).d_mlp == 64 && shared.layer(1).d_mlp == 0);
  const auto listed = read(R"({"per_layer_config": {"1": {"head_dim": 6, "num_key_value_heads": 4},
    "3": {"head_dim": 6, "num_key_value_heads": 4}}})");
  EXPECT_TRUE(listed.layer(3).d_head == 6 && listed.layer(3).n_kv_heads == 4);
  EXPECT_EQ(listed.rope(3)->rotated_pairs, 0);  // a quarter of 6 dimensions is less than a pair
  const auto wrapped = Json{{"model_type", "gemma4"}, {"text_config", base}};
  EXPECT_TRUE(parse_model_config(wrapped, "c").wrapped);

  const auto refused = [&](const std::string& changes, const std::string& part) {
    expect_error(with(base, changes), part);
  };
  refused(R"({"enable_moe_block": true})", "enable_moe_block: experts beside the MLP");
  refused(R"({"use_bidirectional_attention": "all"})", "use_bidirectional_attention is not");
  refused(R"({"num_kv_shared_layers": 3})", "'num_kv_shared_layers' is 3, expected an earlier");
  refused(R"({"num_kv_shared_layers": 5})", "'num_kv_shared_layers' is 5, expected an earlier");
  refused(R"({"vocab_size_per_layer_input": 49})", "expected 50 or more");
  refused(R"({"global_head_dim": 7})", "RoPE turns 7 of 8 head dimensions");
  refused(R"({"attention_k_eq_v": true, "num_global_key_value_heads": 3})",
          "4 query heads cannot share 3 key heads evenly");
  refused(R"({"per_layer_config": {"1": {"head_dim": 6}}})", "equal heads in all layers of one");
  refused(R"({"per_layer_config": {"4": {"head_dim": 6}}})", "the number of a layer from 0 to 3");
  refused(R"({"per_layer_config": {"1": {"intermediate_size": 6}}})",
          "'intermediate_size' is 6, expected head_dim and num_key_value_heads alone");
  const auto rope = [&](const std::string& full) {
    return R"({"rope_parameters": {"sliding_attention": {}, "full_attention": )" + full + "}}";
  };
  EXPECT_EQ(read(rope(R"({"rope_type": "default"})")).rope(1)->dim, 16);
  EXPECT_EQ(read(rope(R"({"rope_type": "proportional"})")).rope(1)->theta, 1e4);
  EXPECT_EQ(read(rope(R"({"rope_type": "proportional"})")).rope(1)->rotated_pairs, 8);
  refused(rope(R"({"rope_type": "linear", "factor": 2, "partial_rotary_factor": 0.5})"),
          "expected 1, or the rope_type proportional");
  refused(R"({"rope_parameters": {"sliding_attention": {}}})", "'full_attention' is missing");
  expect_error(with(llama(), R"({"rope_scaling": {"rope_type": "proportional"}})"),
               "rope_type is 'proportional', supported are default");
}

// Published files have a section linear_attn_config, whose lists count layers from 1; transformers
// writes keys of its own.
TEST(Config, KimiLinearIsRead) {
  const auto base = with(llama(), R"({"model_type": "kimi_linear", "num_hidden_layers": 5,
    "num_key_value_heads": 4, "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "head_dim": 3})");
  const auto read = [&](const std::string& changes) {
    return parse_model_config(with(base, changes), "c");
  };
  const auto plain = read("{}");
  EXPECT_EQ(format_layer_ranges_by_attention(plain, true), "4");  // every fourth layer but layer 0
  EXPECT_TRUE(plain.ropes.empty() && plain.layers[4].rope == -1 && plain.layers[0].rope == -1);
  EXPECT_TRUE(plain.latent.kv_rank == 512 && plain.latent.q_rank == 0 &&
              plain.latent.d_shared == 6 && plain.latent.d_value == 128);
  EXPECT_TRUE(plain.d_head == 16 && plain.attention_scale == 0.25);
  EXPECT_TRUE(plain.mixer.kind == Mixer::kimi_delta && plain.mixer.key_heads == 32 &&
              plain.mixer.value_heads == 32 && plain.mixer.d_key == 128 &&
              plain.mixer.d_value == 128 && plain.mixer.taps == 4);
  EXPECT_TRUE(plain.experts.count == 256 && plain.experts.per_token == 8 &&
              plain.experts.d_mlp == 1024 && plain.experts.sigmoid && plain.experts.normalized &&
              plain.experts.shared_d_mlp == 1024 && plain.experts.groups == 1);
  EXPECT_DOUBLE_EQ(plain.experts.weight_scale, 2.446);
  EXPECT_TRUE(!plain.layers[0].experts && plain.layers[1].experts);
  auto unlimited = base;
  unlimited.erase("max_position_embeddings");
  EXPECT_EQ(parse_model_config(unlimited, "c").max_positions, 1048576);
  EXPECT_EQ(parse_model_config(with(unlimited, R"({"model_max_length": 77})"), "c").max_positions,
            77);

  const auto published = read(R"({"num_experts": 8, "num_experts_per_token": 3,
    "num_expert_group": 4, "topk_group": 2, "num_shared_experts": 2, "moe_renormalize": false,
    "moe_intermediate_size": 10, "mla_use_nope": true, "first_k_dense_replace": 2,
    "linear_head_dim": 99, "linear_attn_config": {"head_dim": 7, "num_heads": 3,
    "short_conv_kernel_size": 3, "full_attn_layers": [2, 5], "kda_layers": [1, 3, 4]}})");
  EXPECT_EQ(format_layer_ranges_by_attention(published, true), "1, 4");
  EXPECT_TRUE(published.mixer.d_key == 7 && published.mixer.value_heads == 3 &&
              published.mixer.taps == 3 && published.mixer.decays() == 21);
  EXPECT_TRUE(published.experts.per_token == 3 && published.experts.groups == 4 &&
              published.experts.chosen_groups == 2 && !published.experts.normalized &&
              published.experts.shared_d_mlp == 20);
  EXPECT_TRUE(!published.layers[1].experts && published.layers[2].experts);

  const auto saved = read(R"({"linear_num_heads": 2, "linear_head_dim": 9, "q_lora_rank": 20,
    "linear_conv_kernel_dim": 5, "n_group": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
    "norm_topk_prob": false, "n_shared_experts": 0,
    "mlp_layer_types": ["sparse", "dense", "dense", "dense", "sparse"], "layer_types":
    ["linear_attention", "full_attention", "linear_attention", "full_attention", "full_attention"]})");
  EXPECT_EQ(format_layer_ranges_by_attention(saved, false), "0, 2");
  EXPECT_TRUE(saved.mixer.d_value == 9 && saved.mixer.key_heads == 2 && saved.mixer.taps == 5);
  EXPECT_TRUE(saved.latent.q_rank == 20 && saved.experts.groups == 2 && saved.experts.count == 8 &&
              !saved.experts.normalized && saved.experts.shared_d_mlp == 0);
  EXPECT_TRUE(saved.layers[0].experts && !saved.layers[1].experts && saved.layers[4].experts);
  EXPECT_FALSE(
      read(R"({"num_hidden_layers": 1, "layer_types": ["full_attention"]})").has_recurrence());
}

TEST(Config, UnsupportedVariantsOfKimiLinearAreRefused) {
  const auto base = with(llama(), R"({"model_type": "kimi_linear", "num_hidden_layers": 5,
    "num_key_value_heads": 4, "qk_rope_head_dim": 6, "qk_nope_head_dim": 10})");
  const auto reject = [&](const std::string& changes, const std::string& part) {
    expect_error(with(base, changes), part);
  };
  const auto lists = [](const std::string& attention, const std::string& kimi) {
    return R"({"linear_attn_config": {"full_attn_layers": )" + attention + R"(, "kda_layers": )" +
           kimi + "}}";
  };
  reject(R"({"num_hidden_layers": 4})",
         "linear_attn_config: 'full_attn_layers' is absent, expected "
         "at least one layer with attention");
  reject(lists("[]", "[1, 2, 3, 4, 5]"), "at least one layer with attention");
  for (const auto* kimi : {"[1, 2, 3]", "[1, 2, 3, 4, 5]", "[0, 1, 2, 3]", "[1, 2, 3, 4, 6]"})
    reject(lists("[5]", kimi),
           "expected every layer from 1 to 5 either here or in full_attn_layers");
  reject(R"({"mla_use_nope": false})",
         "'mla_use_nope' is false, expected true: kimi_linear models "
         "with RoPE are not supported");
  reject(R"({"moe_router_activation_func": "softmax"})", "'moe_router_activation_func' is");
  reject(R"({"moe_layer_freq": 2})", "'moe_layer_freq' is 2, expected 1");
  reject(R"({"mlp_layer_types": ["dense"]})", "expected dense or sparse for every layer");
  reject(R"({"num_key_value_heads": 2})", "'num_key_value_heads' is 2");
  reject(R"({"hidden_act": "gelu"})", "expected silu");
  reject(R"({"linear_head_dim": 70000})",
         "32 heads of dimension 70000, expected at most 65536 of both");
  reject(R"({"linear_attn_config": {"num_heads": 0}})", "linear_attn_config: 'num_heads' is 0");
  reject(R"({"linear_attn_config": {"short_conv_kernel_size": 1}})", "from 2 to 16");
}

// Layers with a gated delta net: given by layer_types, or all but every n-th layer.
TEST(Config, HybridFamiliesAreRead) {
  const auto base = with(llama(), R"({"num_hidden_layers": 4, "head_dim": 8})");
  const auto read = [&](const std::string& changes) {
    return parse_model_config(with(base, changes), "c");
  };
  const auto attention = [](const ModelConfig& model) {
    return format_layer_ranges_by_attention(model, true);
  };

  const auto next = read(R"({"model_type": "qwen3_next"})");
  EXPECT_EQ(attention(next), "3");
  EXPECT_EQ(format_layer_ranges_by_attention(next, false), "0-2");
  EXPECT_TRUE(next.mixer.key_heads == 16 && next.mixer.value_heads == 32 &&
              next.mixer.d_key == 128 && next.mixer.d_value == 128 && next.mixer.taps == 4);
  EXPECT_DOUBLE_EQ(next.mixer.norm_eps, 1e-5);
  EXPECT_TRUE(next.norm_adds_one && next.has_attention_gate() && next.qk_norm);
  EXPECT_TRUE(next.layers[3].rope == 0 && next.layers[0].rope == -1 && next.ropes[0].dim == 2);
  EXPECT_TRUE(next.experts.count == 512 && next.experts.per_token == 10 &&
              next.experts.normalized && next.experts.shared_d_mlp == 512);
  EXPECT_EQ(attention(read(R"({"model_type": "qwen3_next", "full_attention_interval": 2})")),
            "1, 3");
  const auto dense = read(R"({"model_type": "qwen3_next", "num_experts": 0})");
  EXPECT_TRUE(dense.experts.count == 0 && !dense.layers[0].experts);
  EXPECT_FALSE(read(R"({"model_type": "qwen3_next", "mlp_only_layers": [1]})").layers[1].experts);

  const auto qwen = read(R"({"model_type": "qwen3_5_text", "linear_num_key_heads": 2,
    "linear_num_value_heads": 6, "linear_key_head_dim": 4, "linear_value_head_dim": 5,
    "linear_conv_kernel_dim": 3,
    "layer_types": ["full_attention", "linear_attention", "full_attention", "full_attention"]})");
  EXPECT_EQ(attention(qwen), "0, 2-3");
  EXPECT_EQ(qwen.mixer.channels(), 2 * 8 + 30);
  EXPECT_EQ(qwen.mixer.taps, 3);
  Json wrapped = {{"model_type", "qwen3_5"}, {"text_config", base}};
  wrapped["text_config"].erase("model_type");
  EXPECT_EQ(parse_model_config(wrapped, "c").family, "qwen3_5_text");

  const auto reject = [&](const std::string& changes, const std::string& part) {
    expect_error(with(with(base, R"({"model_type": "qwen3_5_text"})"), changes), part);
  };
  reject(R"({"layer_types": ["linear_attention"]})", "layer_types has 1 entries, expected 4");
  reject(R"({"layer_types": ["linear_attention", "sliding_attention", "full_attention", "x"]})",
         "layer_types[1] is 'sliding_attention', expected full_attention or linear_attention");
  reject(R"({"num_hidden_layers": 1, "layer_types": ["linear_attention"]})",
         "expected at least one layer with full_attention");
  reject(R"({"linear_num_key_heads": 3})", "expected a multiple of the 3 key heads");
  reject(R"({"linear_num_key_heads": 0})", "linear_num_key_heads");
  reject(R"({"linear_key_head_dim": 70000})", "expected at most 65536");
  reject(R"({"linear_conv_kernel_dim": 1})", "expected an integer from 2 to 16");
  reject(R"({"hidden_act": "gelu"})", "expected silu");
}

// The width of the MLP is adjusted; layers with attention are numbered or listed.
TEST(Config, Lfm2IsRead) {
  auto base = with(llama(), R"({"model_type": "lfm2", "num_hidden_layers": 3, "hidden_size": 16,
    "num_attention_heads": 8, "intermediate_size": 100, "block_multiple_of": 8})");
  for (const char* key :
       {"num_key_value_heads", "rope_theta", "rms_norm_eps", "head_dim", "tie_word_embeddings"})
    base.erase(key);
  const auto read = [&](const std::string& changes) {
    return parse_model_config(with(base, changes), "c");
  };
  const auto plain = read(R"({"full_attn_idxs": [1]})");
  EXPECT_EQ(format_layer_ranges_by_attention(plain, true), "1");
  EXPECT_TRUE(plain.mixer.kind == Mixer::short_convolution && plain.mixer.taps == 3 &&
              plain.mixer.channels() == 16 && !plain.mixer.input_bias);
  EXPECT_TRUE(plain.tied && plain.qk_norm && plain.n_kv_heads == 8 && plain.norm_eps == 1e-5);
  EXPECT_EQ(plain.ropes[0].theta, 1e6);
  EXPECT_EQ(plain.d_mlp, 72);  // 66 up to a multiple of 8
  const auto old = read(R"({"block_ff_dim": 60, "block_ffn_dim_multiplier": 1.3,
    "tie_embedding": false, "conv_bias": true, "layer_types": ["conv", "conv", "full_attention"]})");
  EXPECT_EQ(old.d_mlp, 56);  // 40, 52
  EXPECT_EQ(format_layer_ranges_by_attention(old, true), "2");
  EXPECT_TRUE(!old.tied && old.mixer.input_bias && old.mixer.convolution_bias);
  EXPECT_EQ(read(R"({"block_auto_adjust_ff_dim": false})").d_mlp, 100);
  EXPECT_FALSE(read("{}").has_recurrence());  // without the keys, every layer has attention
  expect_error(with(base, R"({"layer_types": ["conv", "linear_attention", "full_attention"]})"),
               "layer_types[1] is 'linear_attention', expected full_attention or conv");
  expect_error(with(base, R"({"full_attn_idxs": [7]})"), "expected at least one layer");
  expect_error(with(base, R"({"full_attn_idxs": [1], "conv_L_cache": 1})"), "from 2 to 16");
}

TEST(Config, FalconH1IsRead) {
  auto base = with(llama(), R"({"model_type": "falcon_h1", "num_attention_heads": 8,
    "hidden_size": 32, "mamba_n_heads": 4})");
  for (const char* key : {"num_key_value_heads", "head_dim"}) base.erase(key);
  const auto read = [&](const std::string& changes) {
    return parse_model_config(with(base, changes), "c");
  };
  const auto plain = read("{}");
  EXPECT_TRUE(plain.mixer.d_value == 256 && plain.mixer.d_key == 256 && plain.mixer.taps == 4 &&
              plain.mixer.key_heads == 1 && plain.mixer.convolution_bias);
  EXPECT_TRUE(plain.n_kv_heads == 8 && !plain.mixer.gate_before_norm);
  EXPECT_TRUE(plain.names.mixer[0].norm.empty());
  EXPECT_TRUE(plain.layers[0].has_attention() && plain.layers[0].has_state());
  EXPECT_EQ(format_layer_ranges_by_attention(plain, false), "");
  const auto scaled = read(R"({"mamba_d_ssm": null, "mamba_expand": 3, "mamba_d_head": "auto",
    "mamba_rms_norm": true, "mamba_norm_before_gate": false, "key_multiplier": 0.5,
    "mlp_multipliers": [2.0, 3.0], "ssm_multipliers": [1, 2, 3, 4, 5], "lm_head_multiplier": 0.1,
    "time_step_limit": [0.5, {"__float__": "Infinity"}]})");
  EXPECT_TRUE(scaled.mixer.d_value == 24 && scaled.mixer.gate_before_norm);
  EXPECT_TRUE(scaled.mixer.least_rate == 0.5 && std::isinf(scaled.mixer.most_rate));
  const auto& scales = scaled.projection_scales;
  EXPECT_TRUE(scales.k == 0.5 && scales.gate == 2.0 && scales.down == 3.0 &&
              scales.mixer[4] == 5.0 && scaled.logit_scale == 0.1);
  expect_error(with(base, R"({"mamba_n_heads": 3})"), "a divisor of the 1024 dimensions");
  expect_error(with(base, R"({"mamba_d_head": 7})"), "expected auto or 256");
  expect_error(with(base, R"({"mamba_n_groups": 3})"), "4 heads in 3 groups");
  expect_error(with(base, R"({"mlp_multipliers": [1]})"), "expected 2 numbers");
  expect_error(with(base, R"({"time_step_limit": [1, 0]})"), "a most step above it");
  expect_error(with(base, R"({"time_step_limit": [0, null]})"), "expected two numbers");
  expect_error(with(base, R"({"hidden_act": "gelu"})"), "expected silu");
}

TEST(Config, GraniteMoeHybridIsRead) {
  const auto base = with(llama(), R"({"model_type": "granitemoehybrid", "hidden_size": 16,
    "num_hidden_layers": 2, "layer_types": ["mamba", "attention"], "mamba_n_heads": 4})");
  const auto read = [&](const std::string& changes) {
    return parse_model_config(with(base, changes), "c");
  };
  const auto plain = read("{}");
  EXPECT_EQ(format_layer_ranges_by_attention(plain, true), "1");
  EXPECT_TRUE(plain.mixer.d_value == 8 && plain.mixer.gate_before_norm);
  EXPECT_TRUE(plain.experts.count == 8 && plain.experts.per_token == 2 &&
              plain.experts.normalized && plain.experts.shared_d_mlp == 1024);
  EXPECT_TRUE(plain.d_mlp == 1024 && plain.ropes.empty() && plain.layers[1].rope == -1);
  const auto dense = read(R"({"num_local_experts": 0, "position_embedding_type": "rope",
    "layer_types": ["full_attention", "linear_attention"], "shared_intermediate_size": 40})");
  EXPECT_TRUE(dense.experts.count == 0 && dense.d_mlp == 40 && dense.layers[0].rope == 0);
  const auto attention = read(R"({"num_local_experts": 0,
    "layer_types": ["attention", "attention"], "mamba_n_heads": 3})");
  EXPECT_FALSE(attention.has_recurrence());
  expect_error(with(base, R"({"layer_types": ["mamba", "conv"]})"), "layer_types[1] is 'conv'");
  expect_error(with(base, R"({"layer_types": ["mamba", "mamba"]})"), "at least one layer");
}

TEST(Config, NemotronHIsRead) {
  auto base = with(llama(), R"({"model_type": "nemotron_h", "mamba_num_heads": 16,
    "num_hidden_layers": 99, "hybrid_override_pattern": "M-M*-"})");
  for (const char* key : {"num_key_value_heads", "head_dim"}) base.erase(key);
  base["num_attention_heads"] = 8;
  const auto read = [&](const std::string& changes) {
    return parse_model_config(with(base, changes), "c");
  };
  const auto plain = read("{}");
  EXPECT_EQ(plain.n_layers, 5);
  EXPECT_EQ(format_layer_ranges_by_attention(plain, true), "3");
  EXPECT_TRUE(plain.layers[0].has_state() && !plain.layers[0].mlp);
  EXPECT_TRUE(plain.layers[1].mixer == Mixer::none && plain.layers[1].mlp);
  EXPECT_TRUE(plain.layers[3].has_attention() && !plain.layers[3].mlp);
  EXPECT_TRUE(plain.d_head == 128 && plain.n_kv_heads == 8 && plain.norm_eps == 1e-5);
  EXPECT_TRUE(plain.activation == Activation::relu2 && !plain.gated_mlp() && plain.ropes.empty());
  EXPECT_TRUE(plain.mixer.key_heads == 8 && plain.mixer.d_key == 128 && plain.mixer.d_value == 64 &&
              plain.mixer.least_rate == 0.001);
  const auto experts = read(R"({"layers_block_type": ["mamba", "moe", "attention", "mlp"],
    "n_routed_experts": 6, "mamba_n_groups": 2, "mamba_dt_min": 0.5, "n_groups": 5})");
  EXPECT_TRUE(experts.n_layers == 4 && experts.layers[1].experts && !experts.layers[3].experts);
  EXPECT_TRUE(experts.experts.count == 6 && experts.experts.sigmoid && experts.experts.normalized &&
              experts.experts.shared_d_mlp == 7688);
  EXPECT_TRUE(experts.mixer.key_heads == 2 && experts.mixer.least_rate == 0.5);
  base.erase("hybrid_override_pattern");
  EXPECT_EQ(read("{}").n_layers, 4);  // ME*-
  expect_error(with(base, R"({"hybrid_override_pattern": "MX*"})"), "the letters M, *, - and E");
  expect_error(with(base, R"({"hybrid_override_pattern": "M-"})"), "no layer has attention");
  expect_error(with(base, R"({"layers_block_type": ["conv"]})"), "a list of linear_attention");
  expect_error(with(base, R"({"moe_latent_size": 8})"), "a latent input are not supported");
  expect_error(with(base, R"({"mlp_bias": true})"), "false in a model with experts");
  expect_error(with(base, R"({"mamba_hidden_act": "gelu"})"), "expected silu");
}

// A rope_theta of null switches RoPE off; without the key there is RoPE, as in transformers.
TEST(Config, OlmoHybridHasRopeUnlessThetaIsNull) {
  auto base = with(llama(), R"({"model_type": "olmo_hybrid", "num_hidden_layers": 5})");
  base.erase("rope_theta");
  const auto read = [&](const std::string& changes) {
    return parse_model_config(with(base, changes), "c");
  };
  const auto plain = read("{}");
  EXPECT_EQ(format_layer_ranges_by_attention(plain, true), "3");
  EXPECT_TRUE(plain.mixer.key_heads == 4 && plain.mixer.value_heads == 4 &&
              plain.mixer.d_key == 3 && plain.mixer.d_value == 6);
  EXPECT_TRUE(plain.mixer.rate_scale == 2.0 && plain.mixer.norm_eps == 1e-5);
  EXPECT_TRUE(plain.qk_norm_whole && plain.ropes.size() == 1 && plain.layers[3].rope == 0);
  EXPECT_DOUBLE_EQ(plain.ropes[0].theta, 10000.0);
  EXPECT_EQ(format_layer_ranges_by_attention(read(R"({"num_hidden_layers": 2})"), true),
            "1");  // at least the last
  EXPECT_EQ(read(R"({"linear_allow_neg_eigval": false})").mixer.rate_scale, 1.0);
  EXPECT_EQ(read(R"({"rope_theta": 5e5})").ropes[0].theta, 5e5);
  base["rope_parameters"] = {{"rope_theta", nullptr}, {"rope_type", "default"}};
  const auto nope = read("{}");
  EXPECT_TRUE(nope.ropes.empty());
  for (const auto& layer : nope.layers) EXPECT_EQ(layer.rope, -1);
  base.erase("rope_parameters");
  base["rope_theta"] = nullptr;
  EXPECT_TRUE(read("{}").ropes.empty());
}

std::string text_of(const std::string& path) {
  std::ifstream file(source_path(path));
  return {std::istreambuf_iterator<char>(file), {}};
}

// The code blocks of docs/how-to/adding-a-model.md must occur in the files that the page names.
TEST(Config, DocumentedRecipeMatchesTheCode) {
  const auto recipe = text_of("docs/how-to/adding-a-model.md");
  std::string code;
  for (const auto* path : {"src/engine/model/families/llama.cpp", "src/engine/model/family.cpp",
                           "tests/engine/model/config_test.cpp", "tools/golden/cases.py"})
    code += text_of(path);
  int blocks = 0;
  for (const auto* language : {"```cpp\n", "```python\n"})
    for (auto at = recipe.find(language); at != std::string::npos; at = recipe.find(language, at)) {
      at += std::string(language).size();
      const auto block = recipe.substr(at, recipe.find("```", at) - at);
      EXPECT_NE(code.find(block), std::string::npos) << block;
      ++blocks;
    }
  EXPECT_EQ(blocks, 4);
}

// The error message and the README list every family.
TEST(Config, ErrorAndDocumentationListEveryFamily) {
  const auto error = error_message(with(llama(), R"({"model_type": "mamba"})"));
  const auto models = text_of("docs/reference/models.md");
  for (const auto& family : model_families()) {
    EXPECT_NE(error.find(family.model_type), std::string::npos) << family.model_type;
    EXPECT_NE(models.find(fmt::format("| `{}` | {} |", family.model_type, family.models)),
              std::string::npos)
        << family.model_type;
  }
}

}  // namespace
}  // namespace qkscope
