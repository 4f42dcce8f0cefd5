// GGUF files: bit-exact dequantization against the Python package `gguf`, golden files, corrupt
// files.
#include "input/checkpoint/gguf.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/io/output_file.h"
#include "error_message.h"
#include "input/checkpoint/checkpoint.h"
#include "input/checkpoint/gguf_bytes.h"
#include "paths.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

std::string golden_file(const std::string& name) {
  std::ifstream file(source_path("tests/golden/") + name + "/model.gguf", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

GgufHeader parse_bytes(const std::string& file) {
  return parse_gguf(std::as_bytes(std::span(file)), "file");
}

std::string gguf_error(const std::string& file) {
  return bad_input_message([&] { parse_bytes(file); });
}

// The smallest valid model, without layers. `missing` is a metadata key that it lacks.
GgufBytes tiny_model(const std::string& architecture, const std::string& missing = "") {
  GgufBytes file;
  file.text("general.architecture", architecture);
  const std::pair<const char*, std::uint32_t> sizes[] = {{"embedding_length", 4},
                                                         {"attention.head_count", 2},
                                                         {"block_count", 1},
                                                         {"feed_forward_length", 8},
                                                         {"context_length", 16}};
  for (const auto& [name, value] : sizes)
    if (name != missing) file.number(architecture + "." + name, value);
  return file.real(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f)
      .real(architecture + ".rope.freq_base", 10000.0f)
      .tensor("token_embd.weight", {4, 8}, 0, 0)
      .data(256);
}

GgufBytes tiny_llama() {
  return tiny_model("llama");
}

GgufModel model_of(const std::string& file) {
  static GgufHeader header;
  header = parse_bytes(file);
  return read_gguf_model(header, std::as_bytes(std::span(file)), "file");
}

std::string model_refusal(const GgufBytes& file) {
  return bad_input_message([&] { model_of(file.build()); });
}

TEST(Gguf, DequantizationIsBitExact) {
  const SafetensorsFile golden(source_path("tests/golden/gguf_blocks.safetensors"));
  std::size_t types = 0;
  for (std::uint32_t id = 0; id < 64; ++id) {
    const auto* type = find_gguf_dtype(id);
    if (type == nullptr) continue;
    const auto blocks = golden.tensor(std::string(type->name) + ".blocks");
    const auto values = golden.tensor(std::string(type->name) + ".values");
    ASSERT_EQ(blocks.dim(1), static_cast<std::int64_t>(type->bytes)) << type->name;
    std::vector<float> widened(static_cast<std::size_t>(values.size()));
    dequantize_blocks(*type, {blocks.bytes(), blocks.size_bytes()}, widened.data());
    EXPECT_EQ(std::memcmp(widened.data(), values.bytes(), values.size_bytes()), 0) << type->name;
    ++types;
  }
  EXPECT_EQ(types, 14u);
}

TEST(Gguf, ConvertsConfigAndTensorNamesToHuggingFace) {
  const auto folder = source_path("tests/golden/gguf_llama");
  const auto checkpoint = Checkpoint::open(folder);
  const auto& info = checkpoint.tensor_info("model.layers.1.mlp.down_proj.weight");
  EXPECT_EQ(info.shape, (std::vector<std::int64_t>{32, 64}));
  EXPECT_EQ(info.file, "model.gguf");
  EXPECT_EQ(weight_files(folder), std::vector<std::string>{folder + "/model.gguf"});
  EXPECT_EQ(load_config(folder)["model_type"], "llama");
  EXPECT_EQ(load_config(folder)["rms_norm_eps"],
            1e-6);  // shortest decimal
  EXPECT_EQ(load_config(folder + "/model.gguf"), load_config(folder));
  EXPECT_EQ(config_path(folder), folder + "/model.gguf");
  EXPECT_EQ(checkpoint.tensor("model.norm.weight").dim(0), 32);
}

TEST(Gguf, PlainTensorsAreViewsAndDequantizedTensorsAreCached) {
  const GgufFile file(source_path("tests/golden/gguf_llama/model.gguf"));
  EXPECT_EQ(file.tensor("model.norm.weight").dtype(), DType::f32);
  const auto first = file.tensor("model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(first.dtype(), DType::f32);
  EXPECT_EQ(first.bytes(), file.tensor("model.layers.0.self_attn.q_proj.weight").bytes());
  // All tensors except the norms: two embeddings, and q, k, v, o, gate, up and down of two layers.
  const std::uint64_t weights = 2 * 96 * 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 64);
  EXPECT_EQ(file.dequantized_bytes(), 4 * weights);
  EXPECT_LT(file.stored_bytes(), 4 * weights);
}

TEST(Gguf, TruncatedFilesAreRejected) {
  const auto file = golden_file("gguf_llama");
  for (std::size_t length = 0; length < file.size(); length += 97)
    EXPECT_FALSE(gguf_error(file.substr(0, length)).empty()) << length;
}

// Corrupts one byte at a time: the file is rejected, or every tensor lies inside the file.
TEST(Gguf, CorruptBytesNeverCauseReadsOutsideTheFile) {
  auto file = golden_file("gguf_phi3");
  for (std::size_t at = 0; at < std::min<std::size_t>(file.size(), 4096); ++at) {
    const char before = file[at];
    file[at] = static_cast<char>(before ^ 0x5a);
    try {
      for (const auto& [name, tensor] : parse_bytes(file).tensors) {
        EXPECT_LE(tensor.begin, tensor.end);
        EXPECT_LE(tensor.end, file.size());
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input) << error.what();
    }
    file[at] = before;
  }
}

TEST(Gguf, InvalidHeadersAreRejectedWithAReason) {
  EXPECT_THAT(gguf_error("GGML" + std::string(60, '\0')), HasSubstr("does not begin with 'GGUF'"));
  EXPECT_THAT(gguf_error(GgufBytes().build(1)), HasSubstr("GGUF version 1, expected 2 or 3"));
  EXPECT_THAT(gguf_error(GgufBytes().build(0x03000000)), HasSubstr("the high byte first"));
  EXPECT_TRUE(parse_bytes(GgufBytes().build(2)).tensors.empty());
  EXPECT_THAT(gguf_error(GgufBytes().entry("a", 13, "x").build()), HasSubstr("value type 13"));
  EXPECT_THAT(gguf_error(GgufBytes().entry("a", 7, "\2").build()),
              HasSubstr("is 2, expected a bool"));
  EXPECT_THAT(gguf_error(GgufBytes().number("a", 1).number("a", 1).build()),
              HasSubstr("there twice"));
  EXPECT_THAT(gguf_error(GgufBytes().list("a", 9, 1, "").build()), HasSubstr("a list of lists"));
  EXPECT_THAT(gguf_error(GgufBytes().list("a", 0, 1 << 23, "x").build()),
              HasSubstr("too short for"));
  EXPECT_THAT(gguf_error(GgufBytes().list("a", 0, 1 << 30, "x").build()), HasSubstr("at most"));
  EXPECT_THAT(gguf_error(GgufBytes().number("split.count", 3).build()), HasSubstr("--merge"));
  for (const std::uint32_t step : {0u, 3u, (1u << 20) + 8})
    EXPECT_THAT(gguf_error(GgufBytes().number("general.alignment", step).build()),
                HasSubstr("a multiple of 8"));
}

TEST(Gguf, InvalidTensorsAreRejectedWithAReason) {
  const auto with = [](const std::vector<std::uint64_t>& sizes, std::uint32_t type,
                       std::uint64_t offset = 0) {
    return GgufBytes().tensor("a", sizes, type, offset).data(64).build();
  };
  EXPECT_EQ(parse_bytes(with({4, 2}, 0)).tensors.at("a").shape, (std::vector<std::int64_t>{2, 4}));
  EXPECT_THAT(gguf_error(with({256}, 16)), HasSubstr("stored as IQ2_XXS, which is not supported"));
  EXPECT_THAT(gguf_error(with({256}, 99)), HasSubstr("stored as type 99"));
  EXPECT_THAT(gguf_error(with({16}, 8)), HasSubstr("blocks of 32 (Q8_0) do not fill"));
  EXPECT_THAT(gguf_error(with({0}, 0)), HasSubstr("a dimension of 0"));
  EXPECT_THAT(gguf_error(with({1, 1, 1, 1, 1}, 0)), HasSubstr("5 dimensions"));
  EXPECT_THAT(gguf_error(with({17}, 0)), HasSubstr("truncated"));
  EXPECT_THAT(gguf_error(with({1 << 30, 1 << 30, 1 << 30, 1 << 30}, 0)),
              HasSubstr("more elements"));
  EXPECT_THAT(gguf_error(with({4}, 0, 8)), HasSubstr("expected a multiple of 32"));
  const auto two = GgufBytes().tensor("a", {9}, 0, 0).tensor("b", {4}, 0, 32).data(64);
  EXPECT_THAT(gguf_error(two.build()), HasSubstr("overlap"));
  const auto twice = GgufBytes().tensor("a", {4}, 0, 0).tensor("a", {4}, 0, 32).data(64);
  EXPECT_THAT(gguf_error(twice.build()), HasSubstr("there twice"));
}

TEST(Gguf, UnsupportedSettingsAndTensorsAreNamed) {
  EXPECT_EQ(model_of(tiny_llama().build()).config["vocab_size"], 8);
  EXPECT_THAT(model_refusal(GgufBytes().text("general.architecture", "mamba")),
              HasSubstr(R"("mamba" is not supported in GGUF files; supported are llama)"));
  EXPECT_THAT(model_refusal(GgufBytes().text("general.architecture", "llama")),
              HasSubstr(R"(no "llama.embedding_length")"));
  EXPECT_THAT(model_refusal(tiny_llama().number("llama.expert_count", 8)),
              HasSubstr("mixture of experts"));
  EXPECT_THAT(model_refusal(tiny_llama().tensor("blk.0.attn_sinks.weight", {4}, 0, 128)),
              HasSubstr(R"("blk.0.attn_sinks.weight" is none that a llama model has)"));
  EXPECT_THAT(model_refusal(tiny_llama().number("llama.attention.value_length", 8)),
              HasSubstr(R"("llama.attention.value_length" is 8, expected 2)"));
  EXPECT_THAT(model_refusal(tiny_llama().number("llama.attention.sliding_window", 8)),
              HasSubstr("expected none"));
  EXPECT_THAT(model_refusal(tiny_llama().text("llama.rope.scaling.type", "longrope")),
              HasSubstr("expected none, linear or yarn"));
  EXPECT_THAT(model_refusal(tiny_llama().list("llama.attention.head_count_kv", 4, 2,
                                              GgufBytes::of(1) + GgufBytes::of(2))),
              HasSubstr("one number for all layers"));
}

// One row per refusal: the file, and what the message says.
TEST(Gguf, RefusalsSayWhatIsWrong) {
  const auto word64 = [](std::uint64_t value) { return GgufBytes::of(value); };
  const std::string count = "llama.attention.head_count";
  const std::string whole = "expected a whole number, zero or more";
  const std::pair<std::string, GgufBytes> rows[] = {
      {"the name of a metadata key has 65537 bytes, expected at most 65536",
       GgufBytes().text(std::string(65537, 'x'), "")},
      {"expected a string", tiny_llama().number("llama.rope.scaling.type", 1)},
      {whole, tiny_llama().entry("llama.expert_count", 10, word64(UINT64_MAX))},
      {whole, tiny_llama().entry("llama.expert_count", 11, word64(UINT64_MAX))},
      {whole, tiny_llama().text("llama.expert_count", "8")},
      {"is \"" + std::string(76, 'x') + "..., " + whole,
       tiny_llama().text("llama.expert_count", std::string(100, 'x'))},
      {"expected a number", tiny_model("gemma2").text("gemma2.attn_logit_softcapping", "x")},
      {"expected one or more", tiny_model("llama", "attention.head_count").number(count, 0)},
      {"one number for all layers",
       tiny_model("llama", "attention.head_count").list(count, 4, 0, "")},
      {"one number for all layers",
       tiny_model("llama", "attention.head_count").reals(count, {2, 2})},
      {"'token_embd.weight' of two dimensions", GgufBytes()
                                                    .text("general.architecture", "llama")
                                                    .number("llama.embedding_length", 4)
                                                    .number(count, 2)
                                                    .number("llama.block_count", 1)
                                                    .number("llama.feed_forward_length", 8)
                                                    .number("llama.context_length", 16)},
      {"expected 2, the length of keys", tiny_llama().number("llama.rope.dimension_count", 1)},
      {"true or false for each layer",
       tiny_model("gemma3")
           .number("gemma3.attention.sliding_window", 4)
           .integers("gemma3.attention.sliding_window_pattern", {1})},
      {"expected 1, as models of this architecture have",
       tiny_llama()
           .text("llama.rope.scaling.type", "yarn")
           .real("llama.rope.scaling.factor", 4)
           .real("llama.rope.scaling.attn_factor", 2)},
      {R"("llama.attention.scale" is 2.0, expected none)",
       tiny_llama().real("llama.attention.scale", 2)},
      {R"("llama.attention.causal" is false, expected none)",
       tiny_llama().flag("llama.attention.causal", false)},
      {"expected the value of rope.freq_base",
       tiny_model("olmo2").real("olmo2.rope.freq_base_swa", 1000)},
      {"expected 1 beside factors of frequencies",
       tiny_llama().real("llama.rope.scaling.factor", 2).tensor("rope_freqs.weight", {1}, 0, 128)},
      {R"(no "granite.attention.scale")", tiny_model("granite")},
      {R"(no "cohere2.attention.layer_norm_epsilon")", tiny_model("cohere2")},
      {R"(no "qwen3moe.expert_used_count")", tiny_model("qwen3moe")},
      {"is none that a seed_oss model has",
       tiny_model("seed_oss")
           .tensor("blk.0.ffn_norm.weight", {4}, 0, 128)
           .tensor("blk.0.post_attention_norm.weight", {4}, 0, 160)},
      {"has 65537 elements, expected a factor for each frequency",
       tiny_llama().tensor("rope_freqs.weight", {65537}, 0, 128).data(1 << 19)},
  };
  for (const auto& [message, file] : rows) EXPECT_THAT(model_refusal(file), HasSubstr(message));
  for (const auto* name : {"blk.0.attn_q.scale", "blk.x.attn_q.weight", "blk..attn_q.weight",
                           "layer.0.attn_q.weight", "blk.0.weight", "blk.0.post_ffw_norm.weight"})
    EXPECT_THAT(model_refusal(tiny_llama().tensor(name, {4}, 0, 128)),
                HasSubstr("is none that a llama model has"));
}

TEST(Gguf, SettingsBecomeThoseOfConfigJson) {
  const auto config = [](const GgufBytes& file) { return model_of(file.build()).config; };
  EXPECT_EQ(config(tiny_llama().list("llama.attention.head_count_kv", 4, 2,
                                     GgufBytes::of(1u) + GgufBytes::of(1u)))["num_key_value_heads"],
            1);
  const auto yarn = config(tiny_llama()
                               .text("llama.rope.scaling.type", "yarn")
                               .real("llama.rope.scaling.factor", 4)
                               .number("llama.rope.scaling.original_context_length", 8)
                               .real("llama.rope.scaling.yarn_beta_fast", 32)
                               .real("llama.rope.scaling.attn_factor", 1));
  EXPECT_EQ(yarn["rope_scaling"], Json({{"rope_type", "yarn"},
                                        {"factor", 4.0},
                                        {"original_max_position_embeddings", 8},
                                        {"beta_fast", 32.0}}));
  const auto linear = config(
      tiny_llama().text("llama.rope.scaling.type", "linear").real("llama.rope.scaling.factor", 2));
  EXPECT_EQ(linear["rope_scaling"], Json({{"rope_type", "linear"}, {"factor", 2.0}}));
  EXPECT_EQ(config(tiny_llama().real("llama.rope.scaling.factor", 2))["rope_scaling"]["rope_type"],
            "linear");  // the default of llama.cpp
  EXPECT_FALSE(config(tiny_llama()
                          .text("llama.rope.scaling.type", "none")
                          .real("llama.rope.scaling.factor", 1)
                          .number("llama.vocab_size", 8)
                          .flag("llama.attention.causal", true))
                   .contains("rope_scaling"));
  const auto factors = config(tiny_llama()
                                  .real("llama.rope.scaling.attn_factor", 1.5f)
                                  .tensor("rope_freqs.weight", {1}, 0, 128));
  EXPECT_EQ(factors["rope_scaling"]["long_factor"], Json::array({0.0}));
  EXPECT_EQ(factors["rope_scaling"]["attention_factor"], 1.5);
  EXPECT_FALSE(config(tiny_llama().tensor("rope_factors_short.weight", {1}, 0, 128))
                   .contains("rope_scaling"));
  EXPECT_EQ(
      config(tiny_model("phi3").number("phi3.rope.dimension_count", 1))["partial_rotary_factor"],
      0.5);
  const auto gemma = config(tiny_model("gemma2", "block_count")
                                .number("gemma2.block_count", 46)
                                .number("gemma2.attention.key_length", 8)
                                .number("gemma2.attention.value_length", 8)
                                .real("gemma2.attn_logit_softcapping", 50)
                                .real("gemma2.rope.freq_base_swa", 100));
  EXPECT_EQ(gemma["query_pre_attn_scalar"], 2);
  EXPECT_EQ(gemma["attn_logit_softcapping"], 50.0);
  EXPECT_EQ(gemma["rope_local_base_freq"], 100.0);
  const auto f16 = config(tiny_llama().tensor("blk.0.ffn_down.weight", {4, 2}, 1, 128));
  EXPECT_EQ(f16["dtype"], "float16");
  const auto quantized = config(tiny_llama().tensor("blk.0.ffn_down.weight", {32}, 8, 128));
  EXPECT_EQ(quantized["dtype"], "float32");
}

TEST(Gguf, ArchitecturesHaveSettingsOfTheirOwn) {
  const auto config = [](const GgufBytes& file) { return model_of(file.build()).config; };
  const auto experts = config(tiny_model("qwen3moe")
                                  .number("qwen3moe.expert_count", 8)
                                  .number("qwen3moe.expert_used_count", 2));
  EXPECT_EQ(experts["num_experts"], 8);
  EXPECT_EQ(experts["num_experts_per_tok"], 2);
  EXPECT_EQ(experts["norm_topk_prob"], true);
  EXPECT_EQ(config(tiny_model("olmo2"))["model_type"], "olmo2");
  EXPECT_EQ(config(tiny_model("olmo2").number("olmo2.attention.sliding_window", 4))["model_type"],
            "olmo3");
  EXPECT_TRUE(config(tiny_model("exaone4"))["sliding_window"].is_null());
  for (const std::uint32_t count : {16u, 128u})  // Scout and Maverick
    EXPECT_EQ(config(tiny_model("llama4")
                         .number("llama4.expert_count", count)
                         .number("llama4.expert_used_count", 1)
                         .number("llama4.expert_feed_forward_length", 6)
                         .number("llama4.interleave_moe_layer_step", 1))["use_qk_norm"],
              count == 16);
}

GgufBytes tiny_deepseek() {
  return tiny_model("deepseek2")
      .number("deepseek2.expert_count", 8)
      .number("deepseek2.expert_used_count", 2)
      .number("deepseek2.expert_shared_count", 1)
      .number("deepseek2.leading_dense_block_count", 1)
      .number("deepseek2.attention.kv_lora_rank", 12)
      .number("deepseek2.attention.key_length", 16)
      .number("deepseek2.attention.value_length", 12)
      .number("deepseek2.rope.dimension_count", 4);
}

TEST(Gguf, DeepseekFilesNameTheVersionByTheirRouter) {
  const auto config = [](const GgufBytes& file) { return model_of(file.build()).config; };
  const auto v2 = config(tiny_deepseek());
  EXPECT_EQ(v2["model_type"], "deepseek_v2");
  EXPECT_EQ(v2["topk_method"], "greedy");
  EXPECT_EQ(v2["qk_nope_head_dim"], 12);  // the layout of older converters
  EXPECT_EQ(v2["qk_rope_head_dim"], 4);
  EXPECT_EQ(v2["v_head_dim"], 12);
  EXPECT_EQ(v2["num_key_value_heads"], 2);
  EXPECT_TRUE(v2["q_lora_rank"].is_null());
  EXPECT_EQ(config(tiny_deepseek().number("deepseek2.expert_group_count", 4))["topk_method"],
            "group_limited_greedy");
  const auto v3 = config(tiny_deepseek()
                             .number("deepseek2.expert_gating_func", 2)
                             .flag("deepseek2.expert_weights_norm", true)
                             .number("deepseek2.attention.q_lora_rank", 6)
                             .number("deepseek2.attention.head_count_kv", 1)
                             .number("deepseek2.attention.key_length_mla", 10)
                             .number("deepseek2.attention.value_length_mla", 7)
                             .text("deepseek2.rope.scaling.type", "yarn")
                             .real("deepseek2.rope.scaling.factor", 4)
                             .real("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f));
  EXPECT_EQ(v3["model_type"], "deepseek_v3");
  EXPECT_EQ(v3["topk_method"], "noaux_tc");
  EXPECT_EQ(v3["norm_topk_prob"], true);
  EXPECT_EQ(v3["q_lora_rank"], 6);
  EXPECT_EQ(v3["num_key_value_heads"], 2);
  EXPECT_EQ(v3["qk_nope_head_dim"], 6);
  EXPECT_EQ(v3["v_head_dim"], 7);
  EXPECT_EQ(v3["rope_scaling"]["mscale"], 0.707);
  EXPECT_EQ(v3["rope_scaling"]["mscale_all_dim"], 0.707);
  EXPECT_THAT(model_refusal(tiny_deepseek().number("deepseek2.expert_gating_func", 3)),
              HasSubstr("expected 1 (softmax) or 2 (sigmoid)"));
}

GgufBytes tiny_experts(const std::string& architecture) {
  return tiny_model(architecture, "block_count")
      .number(architecture + ".block_count", 2)
      .number(architecture + ".expert_count", 8)
      .number(architecture + ".expert_used_count", 2);
}

TEST(Gguf, LayersThatPredictFurtherTokensAreNotRead) {
  const auto file = [] { return tiny_experts("glm4moe").number("glm4moe.expert_shared_count", 1); };
  const auto layers = [&](std::uint32_t further) {
    return model_of(file()
                        .number("glm4moe.nextn_predict_layers", further)
                        .tensor("blk.0.attn_norm.weight", {4}, 0, 128)
                        .tensor("blk.1.attn_norm.weight", {4}, 0, 160)
                        .build());
  };
  EXPECT_EQ(layers(0).config["num_hidden_layers"], 2);
  EXPECT_TRUE(layers(0).tensors.contains("model.layers.1.input_layernorm.weight"));
  const auto trunk = layers(1);
  EXPECT_EQ(trunk.config["num_hidden_layers"], 1);
  EXPECT_TRUE(trunk.tensors.contains("model.layers.0.input_layernorm.weight"));
  EXPECT_FALSE(trunk.tensors.contains("model.layers.1.input_layernorm.weight"));
  EXPECT_THAT(model_refusal(file().tensor("blk.1.nextn.eh_proj.weight", {4}, 0, 128)),
              HasSubstr("is none that a glm4moe model has"));
  EXPECT_THAT(model_refusal(tiny_model("llama").number("llama.nextn_predict_layers", 1)),
              HasSubstr("expected none"));
}

TEST(Gguf, SigmoidRoutersKeepTheirSettings) {
  const auto file = [] { return tiny_experts("glm4moe").number("glm4moe.expert_shared_count", 1); };
  const auto plain = model_of(file().build()).config;
  EXPECT_EQ(plain["norm_topk_prob"], false);
  EXPECT_EQ(plain["first_k_dense_replace"], 0);
  EXPECT_EQ(plain["use_qk_norm"], false);
  EXPECT_EQ(plain["partial_rotary_factor"], 1.0);
  const auto full = model_of(file()
                                 .flag("glm4moe.expert_weights_norm", true)
                                 .real("glm4moe.expert_weights_scale", 2.5f)
                                 .number("glm4moe.expert_gating_func", 2)
                                 .number("glm4moe.leading_dense_block_count", 1)
                                 .tensor("blk.0.attn_q_norm.weight", {2}, 0, 128)
                                 .build())
                        .config;
  EXPECT_EQ(full["norm_topk_prob"], true);
  EXPECT_EQ(full["routed_scaling_factor"], 2.5);
  EXPECT_EQ(full["first_k_dense_replace"], 1);
  EXPECT_EQ(full["use_qk_norm"], true);
  EXPECT_THAT(model_refusal(file().number("glm4moe.expert_gating_func", 1)),
              HasSubstr("expected 2 (sigmoid)"));
  EXPECT_EQ(model_of(tiny_experts("minimax-m2").build()).config["norm_topk_prob"], true);
  EXPECT_THAT(
      model_refusal(tiny_experts("minimax-m2").flag("minimax-m2.expert_weights_norm", false)),
      HasSubstr("is false, expected true"));
}

TEST(Gguf, LayersWithoutKeyHeadsAreConvolutions) {
  const auto file = [](const std::vector<std::int32_t>& kv_heads) {
    return tiny_model("lfm2")
        .number("lfm2.shortconv.l_cache", 3)
        .integers("lfm2.attention.head_count_kv", kv_heads);
  };
  const auto model = model_of(file({0, 1, 0})
                                  .tensor("token_embd_norm.weight", {4}, 0, 128)
                                  .tensor("blk.0.shortconv.conv.weight", {3, 4}, 0, 160)
                                  .build());
  EXPECT_EQ(model.config["layer_types"], (Json{"conv", "full_attention", "conv"}));
  EXPECT_EQ(model.config["num_key_value_heads"], 1);
  EXPECT_EQ(model.config["conv_L_cache"], 3);
  EXPECT_TRUE(model.tensors.contains("model.embedding_norm.weight"));
  EXPECT_EQ(model.tensors.at("model.layers.0.conv.conv.weight").shape,
            (std::vector<std::int64_t>{4, 1, 3}));
  EXPECT_THAT(model_refusal(file({1, 0, 2})), HasSubstr("one number for all layers"));
  for (const auto& wrong : {std::vector<std::int32_t>{0, 0}, {1, -1}, {-1}, {}})
    EXPECT_THAT(model_refusal(file(wrong)), HasSubstr("one number for all layers"));
  EXPECT_THAT(model_refusal(file({1}).tensor("output_norm.weight", {4}, 0, 128)),
              HasSubstr("is none that a lfm2 model has"));
}

GgufBytes with_mamba(GgufBytes file, const std::string& architecture,
                     const std::string& missing = "") {
  const std::pair<const char*, std::uint32_t> sizes[] = {{"inner_size", 8},
                                                         {"time_step_rank", 4},
                                                         {"group_count", 2},
                                                         {"state_size", 3},
                                                         {"conv_kernel", 4}};
  for (const auto& [name, value] : sizes)
    if (name != missing) file.number(architecture + ".ssm." + name, value);
  return file;
}

GgufBytes tiny_mamba(const std::string& architecture, const std::string& missing = "") {
  return with_mamba(tiny_model(architecture), architecture, missing);
}

GgufBytes tiny_granite_hybrid(const std::string& missing = "") {
  auto file = tiny_mamba("granitehybrid", missing);
  for (const auto* name : {"attention.scale", "embedding_scale", "residual_scale", "logit_scale"})
    file.real(std::string("granitehybrid.") + name, 0.5f);
  return file.integers("granitehybrid.attention.head_count_kv", {0, 1});
}

// One layer of each kind: Mamba 2, an MLP or experts, and attention.
GgufBytes tiny_nemotron(const std::string& architecture,
                        const std::vector<std::int32_t>& widths = {0, 8, 0},
                        const std::vector<std::int32_t>& key_heads = {0, 0, 1}) {
  GgufBytes file;
  file.text("general.architecture", architecture)
      .number(architecture + ".embedding_length", 4)
      .number(architecture + ".block_count", static_cast<std::uint32_t>(key_heads.size()))
      .number(architecture + ".attention.head_count", 2)
      .number(architecture + ".context_length", 16)
      .integers(architecture + ".feed_forward_length", widths)
      .integers(architecture + ".attention.head_count_kv", key_heads)
      .flag(architecture + ".rope.scaling.finetuned", false)
      .number(architecture + ".rope.dimension_count", 1)
      .tensor("token_embd.weight", {4, 8}, 0, 0)
      .data(256);
  return with_mamba(file, architecture);
}

TEST(Gguf, SizesOfMamba2BecomeThoseOfConfigJson) {
  const auto model = model_of(tiny_mamba("falcon-h1")
                                  .tensor("blk.0.ffn_norm", {4}, 0, 128)
                                  .tensor("blk.0.ssm_conv1d.weight", {4, 3}, 0, 160)
                                  .tensor("blk.0.ssm_a", {1, 4}, 0, 224)
                                  .tensor("blk.0.ssm_d", {1, 4}, 0, 256)
                                  .tensor("blk.0.ssm_dt.bias", {4}, 0, 288)
                                  .tensor("blk.0.ssm_norm.weight", {4, 2}, 0, 320)
                                  .data(512)
                                  .build());
  for (const auto& [setting, value] :
       {std::pair{"mamba_d_ssm", 8}, std::pair{"mamba_expand", 2}, std::pair{"mamba_n_heads", 4},
        std::pair{"mamba_d_head", 2}, std::pair{"mamba_n_groups", 2}, std::pair{"mamba_d_state", 3},
        std::pair{"mamba_d_conv", 4}})
    EXPECT_EQ(model.config[setting], value) << setting;
  EXPECT_EQ(model.config["mamba_rms_norm"], true);
  EXPECT_EQ(model.config["mamba_norm_before_gate"], false);
  const std::string layer = "model.layers.0.";
  using Sizes = std::vector<std::int64_t>;
  EXPECT_TRUE(model.tensors.contains(layer + "pre_ff_layernorm.weight"));
  EXPECT_TRUE(model.tensors.contains(layer + "mamba.dt_bias"));
  EXPECT_EQ(model.tensors.at(layer + "mamba.conv1d.weight").shape, (Sizes{3, 1, 4}));
  EXPECT_EQ(model.tensors.at(layer + "mamba.A_log").shape, Sizes{4});
  EXPECT_EQ(model.tensors.at(layer + "mamba.D").shape, Sizes{4});
  EXPECT_EQ(model.tensors.at(layer + "mamba.norm.weight").shape, Sizes{8});
  // Shapes that the converter does not write stay as they are, for the engine to refuse.
  const auto wrong = model_of(tiny_mamba("falcon-h1")
                                  .tensor("blk.0.ssm_d", {2, 4}, 0, 128)
                                  .tensor("blk.0.ssm_norm.weight", {2, 4}, 0, 160)
                                  .build());
  EXPECT_EQ(wrong.config["mamba_rms_norm"], true);
  EXPECT_EQ(wrong.tensors.at(layer + "mamba.D").shape, (Sizes{4, 2}));
  EXPECT_EQ(wrong.tensors.at(layer + "mamba.norm.weight").shape, (Sizes{4, 2}));
  EXPECT_EQ(model_of(tiny_mamba("falcon-h1").build()).config["mamba_rms_norm"], false);
}

TEST(Gguf, UnsuitableSettingsOfMamba2AreRefusedByName) {
  for (const auto* missing :
       {"inner_size", "time_step_rank", "group_count", "state_size", "conv_kernel"})
    for (const auto& file : {tiny_mamba("falcon-h1", missing), tiny_granite_hybrid(missing)})
      EXPECT_THAT(model_refusal(file), HasSubstr(std::string(".ssm.") + missing + "\""));
  for (const std::uint32_t heads : {0u, 3u})
    EXPECT_THAT(model_refusal(tiny_mamba("falcon-h1", "time_step_rank")
                                  .number("falcon-h1.ssm.time_step_rank", heads)),
                HasSubstr("is 8, expected a multiple of the heads, ssm.time_step_rank"));
  const std::pair<const char*, GgufBytes> rows[] = {
      {R"("falcon-h1.ssm.dt_b_c_rms" is true, expected none)",
       tiny_mamba("falcon-h1").flag("falcon-h1.ssm.dt_b_c_rms", true)},
      {R"("falcon-h1.rope.scaling.finetuned" is false, expected none)",
       tiny_mamba("falcon-h1").flag("falcon-h1.rope.scaling.finetuned", false)},
      {"a mixture of experts", tiny_mamba("falcon-h1").number("falcon-h1.expert_count", 4)},
      {R"(no "granitehybrid.attention.scale")",
       tiny_mamba("granitehybrid").integers("granitehybrid.attention.head_count_kv", {0, 1})},
      {R"(no "granitehybrid.expert_used_count")",
       tiny_granite_hybrid().number("granitehybrid.expert_count", 4)},
      {R"("granitehybrid.expert_weights_scale" is 2.0, expected none)",
       tiny_granite_hybrid().real("granitehybrid.expert_weights_scale", 2)},
      {R"("nemotron_h_moe.moe_latent_size" is 4, expected none)",
       tiny_nemotron("nemotron_h_moe")
           .real("nemotron_h_moe.attention.layer_norm_epsilon", 1e-5f)
           .number("nemotron_h_moe.moe_latent_size", 4)},
      {"expected the width of each layer", tiny_nemotron("nemotron_h", {0, 8})},
      {"expected the width of each layer", tiny_nemotron("nemotron_h", {0, 8, 0, 8})},
      {"expected one number for all layers", tiny_nemotron("nemotron_h", {4, 8, 0})},
      {R"(no "nemotron_h.attention.layer_norm_epsilon")", tiny_nemotron("nemotron_h")},
      {"is none that a falcon-h1 model has",
       tiny_mamba("falcon-h1").tensor("blk.0.ssm_x", {4}, 0, 128)},
  };
  for (const auto& [message, file] : rows) EXPECT_THAT(model_refusal(file), HasSubstr(message));
}

TEST(Gguf, GraniteHybridsMayHaveRopeAndExperts) {
  const auto config = [](const GgufBytes& file) { return model_of(file.build()).config; };
  const std::string at = "granitehybrid.";
  const auto dense = config(tiny_granite_hybrid()
                                .flag(at + "rope.scaling.finetuned", false)
                                .number(at + "expert_count", 0)
                                .number(at + "expert_used_count", 0));
  EXPECT_EQ(dense["layer_types"], (Json{"linear_attention", "full_attention"}));
  EXPECT_EQ(dense["num_local_experts"], 0);
  EXPECT_EQ(dense["shared_intermediate_size"], 8);
  EXPECT_FALSE(dense.contains("position_embedding_type"));
  const auto experts = config(tiny_granite_hybrid()
                                  .number(at + "expert_count", 4)
                                  .number(at + "expert_used_count", 2)
                                  .number(at + "expert_shared_feed_forward_length", 12));
  EXPECT_EQ(experts["position_embedding_type"], "rope");
  EXPECT_EQ(experts["rope_theta"], 10000.0);
  EXPECT_EQ(experts["num_local_experts"], 4);
  EXPECT_EQ(experts["num_experts_per_tok"], 2);
  EXPECT_EQ(experts["intermediate_size"], 8);
  EXPECT_EQ(experts["shared_intermediate_size"], 12);
  EXPECT_EQ(experts["attention_multiplier"], 0.5);
  // Granite 4 models whose layers all have attention are files of the architecture granite.
  auto attention = tiny_model("granite").number("granite.ssm.state_size", 256);
  for (const auto* name : {"attention.scale", "embedding_scale", "residual_scale", "logit_scale"})
    attention.real(std::string("granite.") + name, 0.5f);
  EXPECT_EQ(config(attention)["model_type"], "granite");
}

TEST(Gguf, LayersOfNemotronAreMixersAttentionOrMlps) {
  const auto config = [](const GgufBytes& file) { return model_of(file.build()).config; };
  const std::string at = "nemotron_h_moe.";
  const auto dense =
      config(tiny_nemotron("nemotron_h").real("nemotron_h.attention.layer_norm_epsilon", 1e-4f));
  EXPECT_EQ(dense["layer_types"], (Json{"linear_attention", "mlp", "full_attention"}));
  EXPECT_EQ(dense["intermediate_size"], 8);
  EXPECT_EQ(dense["layer_norm_epsilon"], 1e-4);
  EXPECT_EQ(dense["mamba_head_dim"], 2);
  EXPECT_EQ(dense["mamba_num_heads"], 4);
  EXPECT_EQ(dense["ssm_state_size"], 3);
  EXPECT_EQ(dense["num_experts"], 0);
  // The last layer predicts further tokens: it has attention and experts, and is not read.
  const auto experts = model_of(tiny_nemotron("nemotron_h_moe", {0, 8, 0, 8}, {0, 0, 1, 1})
                                    .real(at + "attention.layer_norm_epsilon", 1e-4f)
                                    .real(at + "attention.layer_norm_rms_epsilon", 1e-5f)
                                    .number(at + "nextn_predict_layers", 1)
                                    .number(at + "expert_count", 4)
                                    .number(at + "expert_used_count", 2)
                                    .number(at + "expert_feed_forward_length", 8)
                                    .number(at + "expert_shared_feed_forward_length", 12)
                                    .number(at + "expert_shared_count", 1)
                                    .flag(at + "expert_weights_norm", true)
                                    .real(at + "expert_weights_scale", 2.5f)
                                    .tensor("blk.0.ssm_out.weight", {4}, 1, 128)
                                    .tensor("blk.1.ffn_up_exps.weight", {4}, 0, 160)
                                    .tensor("blk.1.exp_probs_b.bias", {4}, 0, 192)
                                    .tensor("blk.1.ffn_down_shexp.weight", {4}, 0, 224)
                                    .tensor("blk.2.attn_q.weight", {4, 4}, 0, 288)
                                    .tensor("blk.3.nextn.eh_proj.weight", {4}, 0, 256)
                                    .data(512)
                                    .build());
  EXPECT_EQ(experts.config["layer_types"], (Json{"linear_attention", "moe", "full_attention"}));
  EXPECT_EQ(experts.config["layer_norm_epsilon"], 1e-5);  // of RMSNorm
  EXPECT_EQ(experts.config["dtype"], "float16");
  EXPECT_EQ(experts.config["num_experts"], 4);
  EXPECT_EQ(experts.config["moe_intermediate_size"], 8);
  EXPECT_EQ(experts.config["moe_shared_expert_intermediate_size"], 12);
  EXPECT_EQ(experts.config["norm_topk_prob"], true);
  EXPECT_EQ(experts.config["routed_scaling_factor"], 2.5);
  for (const auto* name :
       {"embeddings.weight", "layers.0.mixer.out_proj.weight", "layers.1.mixer.experts.up_proj",
        "layers.1.mixer.gate.e_score_correction_bias",
        "layers.1.mixer.shared_experts.down_proj.weight", "layers.2.mixer.q_proj.weight"})
    EXPECT_TRUE(experts.tensors.contains(std::string("model.") + name)) << name;
  EXPECT_EQ(experts.tensors.size(), 6u);
  EXPECT_EQ(experts.tensors.at("model.layers.2.mixer.q_proj.weight").order,
            (TensorPermutation{.outer = 2, .inner = 1}));
}

// Two key heads of width 1, four value heads of width 2.
GgufBytes tiny_delta_net(const std::string& architecture, const std::string& missing = "") {
  GgufBytes file = tiny_model(architecture);
  const std::pair<const char*, std::uint32_t> sizes[] = {{"inner_size", 8},
                                                         {"time_step_rank", 4},
                                                         {"group_count", 2},
                                                         {"state_size", 1},
                                                         {"conv_kernel", 4}};
  for (const auto& [name, value] : sizes)
    if (name != missing) file.number(architecture + ".ssm." + name, value);
  if (architecture == "qwen3next")
    file.number("qwen3next.expert_count", 4).number("qwen3next.expert_used_count", 2);
  return file;
}

TEST(Gguf, SizesOfDeltaNetsBecomeThoseOfConfigJson) {
  const auto model = model_of(tiny_delta_net("qwen3next")
                                  .number("qwen3next.expert_shared_feed_forward_length", 12)
                                  .number("qwen3next.full_attention_interval", 4)
                                  .number("qwen3next.rope.dimension_count", 1)
                                  .tensor("blk.0.attn_norm.weight", {4}, 0, 128)
                                  .tensor("blk.0.ssm_norm.weight", {2}, 0, 160)
                                  .tensor("blk.0.ffn_gate_inp_shexp.weight", {4, 1}, 0, 192)
                                  .tensor("blk.0.ssm_ba.weight", {4, 8}, 0, 224)
                                  .tensor("blk.0.ssm_conv1d.weight", {4, 12}, 0, 352)
                                  .tensor("blk.0.ssm_in.weight", {4}, 0, 544)
                                  .data(1024)
                                  .build());
  for (const auto& [setting, value] :
       {std::pair{"linear_num_key_heads", 2}, std::pair{"linear_num_value_heads", 4},
        std::pair{"linear_key_head_dim", 1}, std::pair{"linear_value_head_dim", 2},
        std::pair{"linear_conv_kernel_dim", 4}, std::pair{"full_attention_interval", 4},
        std::pair{"shared_expert_intermediate_size", 12}})
    EXPECT_EQ(model.config[setting], value) << setting;
  EXPECT_EQ(model.config["norm_topk_prob"], true);
  EXPECT_EQ(model.config["partial_rotary_factor"], 0.5);
  EXPECT_FALSE(model.config.contains("layer_types"));
  EXPECT_FALSE(model.config.contains("query_pre_attn_scalar"));
  const std::string layer = "model.layers.0.";
  using Sizes = std::vector<std::int64_t>;
  EXPECT_TRUE(model.tensors.at(layer + "input_layernorm.weight").stored_plus_one);
  EXPECT_FALSE(model.tensors.at(layer + "linear_attn.norm.weight").stored_plus_one);
  EXPECT_EQ(model.tensors.at(layer + "mlp.shared_expert_gate.weight").shape, (Sizes{1, 4}));
  EXPECT_EQ(model.tensors.at(layer + "linear_attn.conv1d.weight").shape, (Sizes{12, 1, 4}));
  EXPECT_TRUE(model.tensors.contains(layer + "linear_attn.in_proj_qkvz.weight"));  // first files
  for (const auto& [name, source] : model.tensors)  // Qwen3-Next keeps the order of value heads
    EXPECT_EQ(source.order, TensorPermutation()) << name;
}

// Values are numbered in the order of the file; value heads are stored as 0, 2, 1, 3.
TEST(Gguf, ValueHeadsOfQwen35ReturnToTheirKeyHeads) {
  const TemporaryFolder folder;
  auto bytes = tiny_delta_net("qwen35")
                   .flags("qwen35.attention.recurrent_layers", {true, false})
                   .integers("qwen35.rope.dimension_sections", {11, 11, 10, 0})
                   .tensor("blk.0.attn_qkv.weight", {1, 12}, 0, 128)
                   .tensor("blk.0.attn_gate.weight", {1, 8}, 0, 192)
                   .tensor("blk.0.ssm_out.weight", {8, 2}, 0, 224)
                   .tensor("blk.0.ssm_dt.bias", {4}, 0, 288)
                   .tensor("blk.0.ssm_beta.weight", {1, 4}, 0, 320)
                   .data(512)
                   .build();
  for (int i = 0; i < 64; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(bytes.data() + bytes.size() - 512 + 128 + i * 4, &value, 4);
  }
  write_file(folder.file("model.gguf"), bytes);
  const GgufFile file(folder.file("model.gguf"));
  EXPECT_EQ(file.model().config["layer_types"], (Json{"linear_attention", "full_attention"}));
  const auto values = [&](const std::string& name, int first) {
    const auto tensor = file.tensor("model.layers.0.linear_attn." + name);
    std::vector<int> found;
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      found.push_back(static_cast<int>(tensor.data<float>()[i]) - first);
    return found;
  };
  EXPECT_EQ(values("in_proj_qkv.weight", 0), (std::vector{0, 1, 2, 3, 4, 5, 8, 9, 6, 7, 10, 11}));
  EXPECT_EQ(values("in_proj_z.weight", 16), (std::vector{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(values("out_proj.weight", 24),
            (std::vector{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}));
  EXPECT_EQ(values("dt_bias", 40), (std::vector{0, 2, 1, 3}));
  EXPECT_EQ(values("in_proj_b.weight", 48), (std::vector{0, 2, 1, 3}));
  // As many key heads as value heads: nothing is permuted.
  const auto equal = model_of(tiny_delta_net("qwen35", "group_count")
                                  .number("qwen35.ssm.group_count", 4)
                                  .tensor("blk.0.ssm_dt.bias", {4}, 0, 128)
                                  .build());
  EXPECT_FALSE(equal.tensors.at("model.layers.0.linear_attn.dt_bias").needs_conversion());
}

TEST(Gguf, UnsuitableDeltaNetsAreRefusedByName) {
  const auto with = [](const std::string& key, std::uint32_t value) {
    return tiny_delta_net("qwen35", key).number("qwen35.ssm." + key, value);
  };
  const std::pair<const char*, GgufBytes> rows[] = {
      {R"(no "qwen35.ssm.state_size")", tiny_delta_net("qwen35", "state_size")},
      {R"("qwen35.ssm.inner_size" is 9, expected a multiple of the heads)", with("inner_size", 9)},
      {R"("qwen35.ssm.group_count" is 0, expected 1 to 1048576)", with("group_count", 0)},
      {R"("qwen35.ssm.state_size" is 2000000, expected 1 to 1048576)", with("state_size", 2000000)},
      {R"("qwen35.ssm.time_step_rank" is 4, expected a multiple of the key heads)",
       with("group_count", 3)},
      {"expected a list", tiny_delta_net("qwen35").number("qwen35.attention.recurrent_layers", 4)},
      {"expected true or false for each layer",
       tiny_delta_net("qwen35").integers("qwen35.attention.recurrent_layers", {1})},
      {R"("qwen35.ssm.dt_b_c_rms" is true, expected none)",
       tiny_delta_net("qwen35").flag("qwen35.ssm.dt_b_c_rms", true)},
      {"a mixture of experts", tiny_delta_net("qwen35").number("qwen35.expert_count", 4)},
      {R"("blk.0.attn_gate.weight" has 7 rows of 4 value heads, expected 8)",
       tiny_delta_net("qwen35").tensor("blk.0.attn_gate.weight", {4, 7}, 0, 128)},
      {R"("blk.0.attn_qkv.weight" has 1 rows of 4 value heads, expected 8)",
       tiny_delta_net("qwen35").tensor("blk.0.attn_qkv.weight", {4, 5}, 0, 128)},
      {R"("blk.0.ssm_out.weight" has 4 columns of 4 value heads, expected 8)",
       tiny_delta_net("qwen35").tensor("blk.0.ssm_out.weight", {4, 8}, 0, 128)},
  };
  for (const auto& [message, file] : rows) EXPECT_THAT(model_refusal(file), HasSubstr(message));
}

GgufBytes tiny_kimi(const std::string& missing = "") {
  const std::string at = "kimi-linear.";
  GgufBytes file = tiny_experts("kimi-linear");
  const std::pair<const char*, std::uint32_t> sizes[] = {
      {"expert_shared_count", 1},       {"leading_dense_block_count", 1},
      {"expert_gating_func", 2},        {"attention.kv_lora_rank", 12},
      {"attention.key_length", 16},     {"kda.head_dim", 3},
      {"attention.key_length_mla", 10}, {"attention.value_length_mla", 7},
      {"ssm.conv_kernel", 4},           {"rope.dimension_count", 4}};
  for (const auto& [name, value] : sizes)
    if (name != missing) file.number(at + name, value);
  return file.integers(at + "attention.head_count_kv", {0, 1});
}

TEST(Gguf, KimiLinearHasDeltaAndLatentAttention) {
  const auto model = model_of(tiny_kimi()
                                  .real("kimi-linear.expert_weights_scale", 2.446f)
                                  .number("kimi-linear.expert_group_used_count", 1)
                                  .tensor("blk.0.ssm_a", {1, 2, 1, 1}, 0, 128)
                                  .tensor("blk.0.ssm_conv1d_q.weight", {4, 1, 6, 1}, 0, 160)
                                  .tensor("blk.0.ssm_f_a.weight", {4, 3}, 0, 256)
                                  .tensor("blk.1.exp_probs_b.bias", {8}, 0, 320)
                                  .data(512)
                                  .build());
  const auto& config = model.config;
  EXPECT_EQ(config["model_type"], "kimi_linear");
  EXPECT_EQ(config["layer_types"], (Json{"linear_attention", "full_attention"}));
  for (const auto& [setting, value] :
       {std::pair{"num_key_value_heads", 2}, std::pair{"linear_num_heads", 2},
        std::pair{"linear_head_dim", 3}, std::pair{"linear_conv_kernel_dim", 4},
        std::pair{"qk_nope_head_dim", 6}, std::pair{"qk_rope_head_dim", 4},
        std::pair{"v_head_dim", 7}, std::pair{"first_k_dense_replace", 1}})
    EXPECT_EQ(config[setting], value) << setting;
  EXPECT_EQ(config["routed_scaling_factor"], 2.446);
  EXPECT_EQ(config["norm_topk_prob"], true);
  using Sizes = std::vector<std::int64_t>;
  const std::string layer = "model.layers.0.self_attn.";
  EXPECT_EQ(model.tensors.at(layer + "A_log").shape, (Sizes{1, 1, 2, 1}));
  EXPECT_EQ(model.tensors.at(layer + "q_conv1d.weight").shape, (Sizes{6, 1, 4}));
  EXPECT_TRUE(model.tensors.contains(layer + "f_a_proj.weight"));
  EXPECT_TRUE(model.tensors.contains("model.layers.1.mlp.gate.e_score_correction_bias"));
  const std::pair<const char*, GgufBytes> rows[] = {
      {R"("kimi-linear.expert_gating_func" is 1, expected 2 (sigmoid))",
       tiny_kimi("expert_gating_func").number("kimi-linear.expert_gating_func", 1)},
      {R"("kimi-linear.expert_weights_norm" is false, expected true)",
       tiny_kimi().flag("kimi-linear.expert_weights_norm", false)},
      {R"(no "kimi-linear.kda.head_dim")", tiny_kimi("kda.head_dim")},
      {R"("kimi-linear.attention.scale" is 2.0, expected none)",
       tiny_kimi().real("kimi-linear.attention.scale", 2)},
  };
  for (const auto& [message, file] : rows) EXPECT_THAT(model_refusal(file), HasSubstr(message));
}

// Four layers; those with full attention have heads of width 4, others of width 2. The last two
// share keys.
GgufBytes tiny_gemma4(const std::string& missing = "", std::uint32_t d_full = 4) {
  const std::string at = "gemma4.";
  GgufBytes file;
  file.text("general.architecture", "gemma4");
  const std::pair<const char*, std::uint32_t> sizes[] = {{"embedding_length", 4},
                                                         {"attention.head_count", 2},
                                                         {"block_count", 4},
                                                         {"context_length", 16},
                                                         {"attention.key_length", d_full},
                                                         {"attention.value_length", d_full},
                                                         {"attention.key_length_swa", 2},
                                                         {"attention.sliding_window", 8},
                                                         {"rope.dimension_count", d_full},
                                                         {"embedding_length_per_layer_input", 0},
                                                         {"attention.shared_kv_layers", 2}};
  for (const auto& [name, value] : sizes)
    if (name != missing) file.number(at + name, value);
  if (missing != "feed_forward_length") file.integers(at + "feed_forward_length", {8, 8, 16, 16});
  if (missing != "attention.head_count_kv")
    file.integers(at + "attention.head_count_kv", {2, 1, 2, 1});
  if (missing != "attention.sliding_window_pattern")
    file.flags(at + "attention.sliding_window_pattern", {true, false, true, false});
  file.real(at + "attention.layer_norm_rms_epsilon", 1e-6f)
      .real(at + "rope.freq_base", 1e6f)
      .real(at + "rope.freq_base_swa", 1e4f)
      .tensor("token_embd.weight", {4, 8}, 0, 0);
  return file;
}

std::string with_factors(GgufBytes file, const std::vector<float>& factors) {
  auto bytes = file.tensor("rope_freqs.weight", {factors.size()}, 0, 128).data(1024).build();
  std::memcpy(bytes.data() + bytes.size() - 1024 + 128, factors.data(),
              factors.size() * sizeof(float));
  return bytes;
}

TEST(Gguf, LayersOfGemma4Differ) {
  const auto config = model_of(with_factors(tiny_gemma4(), {1.0f, 1e30f})).config;
  EXPECT_EQ(config["layer_types"],
            (Json{"sliding_attention", "full_attention", "sliding_attention", "full_attention"}));
  EXPECT_EQ(config["head_dim"], 2);
  EXPECT_EQ(config["per_layer_config"]["0"], (Json{{"head_dim", 2}, {"num_key_value_heads", 2}}));
  EXPECT_EQ(config["per_layer_config"]["3"], (Json{{"head_dim", 4}, {"num_key_value_heads", 1}}));
  EXPECT_EQ(config["intermediate_size"], 8);
  EXPECT_EQ(config["use_double_wide_mlp"], true);
  EXPECT_EQ(config["num_kv_shared_layers"], 2);
  EXPECT_EQ(config["attention_k_eq_v"], true);  // without blk.1.attn_v
  EXPECT_EQ(
      config["rope_parameters"]["full_attention"],
      (Json{{"rope_type", "proportional"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.5}}));
  EXPECT_EQ(config["rope_parameters"]["sliding_attention"]["rope_theta"], 1e4);
  EXPECT_FALSE(config.contains("query_pre_attn_scalar"));
  const auto equal =
      model_of(with_factors(tiny_gemma4("feed_forward_length")
                                .number("gemma4.feed_forward_length", 8)
                                .tensor("blk.1.attn_v.weight", {4}, 0, 512)
                                .tensor("blk.0.attn_norm.weight", {4}, 0, 544)
                                .tensor("per_layer_proj_norm.weight", {4}, 0, 576)
                                .tensor("per_layer_token_embd.weight", {1, 8}, 0, 608)
                                .tensor("blk.0.layer_output_scale.weight", {1}, 0, 640),
                            {1.0f, 1.0f}));
  EXPECT_EQ(equal.config["use_double_wide_mlp"], false);
  EXPECT_EQ(equal.config["vocab_size_per_layer_input"], 8);
  EXPECT_FALSE(equal.config.contains("attention_k_eq_v"));
  EXPECT_EQ(equal.config["rope_parameters"]["full_attention"]["partial_rotary_factor"], 1.0);
  EXPECT_TRUE(equal.tensors.contains("model.per_layer_projection_norm.weight"));
  EXPECT_TRUE(equal.tensors.contains("model.layers.0.layer_scalar"));
  EXPECT_FALSE(equal.tensors.at("model.layers.0.input_layernorm.weight").stored_plus_one);
}

// 2 * pairs / width * width / 2, rounded down, may be one pair less.
TEST(Gguf, RotatedPairsOfGemma4AreExact) {
  for (const int pairs : {14, 15, 30, 44}) {
    std::vector<float> factors(44, 1e30f);
    std::fill_n(factors.begin(), pairs, 1.0f);
    const auto config = model_of(with_factors(tiny_gemma4("", 88), factors)).config;
    const double part = config["rope_parameters"]["full_attention"]["partial_rotary_factor"];
    EXPECT_EQ(static_cast<int>(part * 88.0 / 2.0), pairs);
    EXPECT_LE(part, 1.0);
  }
}

TEST(Gguf, UnsuitableSettingsOfGemma4AreRefusedByName) {
  const std::string at = "gemma4.";
  const std::vector<float> half = {1.0f, 1e30f};
  const std::string pattern = "attention.sliding_window_pattern", booleans = "a list of 4 booleans";
  const std::pair<std::string, std::string> rows[] = {
      {R"(no "gemma4.attention.sliding_window_pattern")", with_factors(tiny_gemma4(pattern), half)},
      {booleans, with_factors(tiny_gemma4(pattern).number(at + pattern, 2), half)},
      {booleans, with_factors(tiny_gemma4(pattern).flags(at + pattern, {true, false}), half)},
      {"false for the last layer",
       with_factors(tiny_gemma4(pattern).flags(at + pattern, {true, false, true, true}), half)},
      {R"("gemma4.attention.sliding_window" is 0, expected one or more)",
       with_factors(
           tiny_gemma4("attention.sliding_window").number(at + "attention.sliding_window", 0),
           half)},
      {R"("gemma4.attention.value_length_swa" is 3, expected 2, the length of keys)",
       with_factors(tiny_gemma4().number(at + "attention.value_length_swa", 3), half)},
      {R"("gemma4.rope.dimension_count_swa" is 1, expected 2, the length of keys)",
       with_factors(tiny_gemma4().number(at + "rope.dimension_count_swa", 1), half)},
      {R"("gemma4.rope.dimension_count" is 2, expected 4, the length of keys)",
       with_factors(tiny_gemma4("rope.dimension_count").number(at + "rope.dimension_count", 2),
                    half)},
      {"expected one width, or twice it in the last 2 layers",
       with_factors(
           tiny_gemma4("feed_forward_length").integers(at + "feed_forward_length", {8, 16, 16, 16}),
           half)},
      {"expected a whole number for each of 4 layers",
       with_factors(
           tiny_gemma4("attention.head_count_kv").integers(at + "attention.head_count_kv", {2, 1}),
           half)},
      {"a mixture of experts", with_factors(tiny_gemma4().number(at + "expert_count", 4), half)},
      {R"("gemma4.rope.scaling.factor" is 2.0, expected none)",
       with_factors(tiny_gemma4().real(at + "rope.scaling.factor", 2), half)},
      {"expected a tensor 'rope_freqs.weight' of 2 factors", tiny_gemma4().data(256).build()},
      {"of 2 factors, first 1, then 1e30", with_factors(tiny_gemma4(), {1.0f, 2.0f})},
      {"of 2 factors, first 1, then 1e30", with_factors(tiny_gemma4(), {1e30f, 1.0f})},
      {"of 2 factors, first 1, then 1e30", with_factors(tiny_gemma4(), {1.0f, 1e30f, 1e30f})},
  };
  for (const auto& [message, file] : rows)
    EXPECT_THAT(bad_input_message([&, &file = file] { model_of(file); }), HasSubstr(message));
}

// exp and log are rounded to float32: A_log may differ by the relative error of exp, at most one
// unit in the last place (2^-23), and by its own rounding (2^-24 of its size).
TEST(Gguf, DecaysOfMamba2AreLogarithms) {
  const TemporaryFolder folder;
  const std::vector<float> logs = {-7.5f, -3.0f, 0.0f, 2.7725887f};
  const auto file = [&](float last) {
    auto bytes = tiny_mamba("falcon-h1").tensor("blk.0.ssm_a", {1, 4}, 0, 128).build();
    for (std::size_t i = 0; i < logs.size(); ++i) {
      const float decay = i == 3 ? last : -std::exp(logs[i]);
      std::memcpy(bytes.data() + bytes.size() - 128 + i * 4, &decay, 4);
    }
    write_file(folder.file("model.gguf"), bytes);
    return GgufFile(folder.file("model.gguf"));
  };
  const auto opened = file(-std::exp(logs[3]));
  const auto values = opened.tensor("model.layers.0.mamba.A_log");
  ASSERT_EQ(values.shape(), Shape({4}));
  for (std::size_t i = 0; i < logs.size(); ++i)
    EXPECT_NEAR(values.data<float>()[i], logs[i], 0x1p-23 + std::abs(logs[i]) * 0x1p-24);
  EXPECT_EQ(opened.dequantized_bytes(), 4 * sizeof(float));
  for (const float wrong : {0.0f, 0.5f, std::nanf("")})
    EXPECT_THAT(bad_input_message([&] { file(wrong).tensor("model.layers.0.mamba.A_log"); }),
                HasSubstr("expected negative ones, -exp(A_log)"));
}

TEST(Gguf, SplitKeysAndValuesOfLatentAttentionAreJoined) {
  const TemporaryFolder folder;
  // One rank and head, two dimensions of keys and one of values; outer dimensions of one are
  // dropped from shapes, so that there are two heads.
  const auto file = [](const std::vector<std::uint64_t>& keys,
                       const std::vector<std::uint64_t>& values) {
    return tiny_deepseek()
        .tensor("blk.0.attn_k_b.weight", keys, 0, 128)
        .tensor("blk.0.attn_v_b.weight", values, 0, 192);
  };
  auto bytes = file({2, 3, 2}, {3, 1, 2}).build();
  const std::size_t data = bytes.size() - 256;
  for (int i = 0; i < 12; ++i) {  // keys[head][rank][dimension] = 100 head + 10 dimension + rank
    const int head = i / 6, rank = i % 6 / 2;
    const auto key = static_cast<float>(head * 100 + i % 2 * 10 + rank);
    std::memcpy(bytes.data() + data + 128 + i * 4, &key, 4);
  }
  for (int i = 0; i < 6; ++i) {
    const int head = i / 3;
    const auto value = static_cast<float>(head * 100 + 20 + i % 3);
    std::memcpy(bytes.data() + data + 192 + i * 4, &value, 4);
  }
  write_file(folder.file("model.gguf"), bytes);
  const GgufFile opened(folder.file("model.gguf"));
  const auto joined = opened.tensor("model.layers.0.self_attn.kv_b_proj.weight");
  EXPECT_EQ(joined.shape(), Shape({6, 3}));
  for (int i = 0; i < 18; ++i)
    EXPECT_EQ(joined.data<float>()[i], i / 9 * 100 + i / 3 % 3 * 10 + i % 3) << i;
  EXPECT_EQ(opened.dequantized_bytes(), 18 * sizeof(float));
  EXPECT_EQ(opened.stored_bytes(), 128 + 18 * sizeof(float));
  for (const auto& wrong : {file({2, 3, 2}, {3, 1, 1}), file({2, 3, 2}, {2, 1, 2}),
                            tiny_deepseek()
                                .tensor("blk.0.attn_kv_b.weight", {3, 6}, 0, 128)
                                .tensor("blk.0.attn_v_b.weight", {3, 1, 2}, 0, 224)})
    EXPECT_THAT(model_refusal(wrong), HasSubstr("is none that a deepseek2 model has"));
}

TEST(Gguf, OuterDimensionsOfOneAreDropped) {
  const auto file = GgufBytes().tensor("a", {4, 1, 1}, 0, 0).tensor("b", {1, 4}, 0, 32).data(64);
  const auto header = parse_bytes(file.build());
  EXPECT_EQ(header.tensors.at("a").shape, std::vector<std::int64_t>{4});
  EXPECT_EQ(header.tensors.at("b").shape, (std::vector<std::int64_t>{4, 1}));
}

TEST(Gguf, TensorsThatCannotBeConvertedAreNamed) {
  const TemporaryFolder folder;
  const auto tensor = [&](const GgufBytes& file, const std::string& name) {
    write_file(folder.file("model.gguf"), file.build());
    const GgufFile opened(folder.file("model.gguf"));
    return opened.tensor(name).size();
  };
  const std::string query = "model.layers.0.self_attn.q_proj.weight";
  const std::string norm = "model.layers.0.input_layernorm.weight";
  EXPECT_THAT(bad_input_message([&] {
                tensor(tiny_llama().tensor("blk.0.attn_q.weight", {4, 3}, 0, 128), query);
              }),
              HasSubstr("has 3 rows, which 2 heads cannot share in pairs"));
  const auto gemma = tiny_model("gemma2");
  EXPECT_THAT(bad_input_message([&] {
                tensor(GgufBytes(gemma).tensor("blk.0.attn_norm.weight", {32}, 8, 128), norm);
              }),
              HasSubstr("has one dimension and is stored as Q8_0; expected F32, F16 or BF16"));
  EXPECT_EQ(tensor(GgufBytes(gemma).tensor("blk.0.attn_norm.weight", {}, 0, 128), norm), 1);
}

TEST(Gguf, SlidingWindowPatternIsAPeriodOrAList) {
  const auto config = [](auto add) {
    auto file = tiny_model("gemma3").number("gemma3.attention.sliding_window", 4);
    add(file);
    return model_of(file.build()).config;
  };
  const std::string key = "gemma3.attention.sliding_window_pattern";
  EXPECT_EQ(config([&](auto& file) { file.number(key, 2); })["sliding_window_pattern"], 2);
  EXPECT_EQ(
      config([&](auto& file) { file.list(key, 7, 2, std::string("\1\0", 2)); })["layer_types"],
      Json({"sliding_attention", "full_attention"}));
}

TEST(Gguf, FindsTheOnlyGgufFileOfAFolder) {
  const TemporaryFolder folder;
  EXPECT_EQ(find_gguf_file(folder.path()), "");
  write_file(folder.file("a.gguf"), golden_file("gguf_phi3"));
  EXPECT_EQ(find_gguf_file(folder.path()), folder.file("a.gguf"));
  EXPECT_EQ(find_gguf_file(folder.file("a.gguf")), folder.file("a.gguf"));
  EXPECT_EQ(find_gguf_file(folder.file("b.gguf")), "");
  write_file(folder.file("b.gguf"), golden_file("gguf_phi3"));
  EXPECT_THAT(bad_input_message([&] { find_gguf_file(folder.path()); }),
              HasSubstr("2 GGUF files are there; give the one to use: a.gguf, b.gguf"));
  write_file(folder.file("model.safetensors"), "");
  EXPECT_EQ(find_gguf_file(folder.path()), "");
}

}  // namespace
}  // namespace qkscope
