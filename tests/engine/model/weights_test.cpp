// Binding of tensors to a model: missing, unexpected and misshapen tensors are errors.
#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "engine/model/loaded_checkpoint.h"
#include "qkscope/model.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using Shapes = std::map<std::string, Shape>;

constexpr const char* kQwen3 = R"({"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 8,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 10, "vocab_size": 12,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e4, "tie_word_embeddings": false})";

Shapes shapes_of(const ModelConfig& model) {
  Shapes shapes;
  for (const auto& spec : expected_tensors(model)) shapes["model." + spec.name] = spec.shape;
  shapes["lm_head.weight"] = {model.vocab_size, model.d_model};
  return shapes;
}

// Writes and loads a checkpoint with the given tensors; returns the error message, if any.
std::string load_with(const Shapes& shapes, const std::string& config = kQwen3,
                      DType dtype = DType::f32) {
  const TemporaryFolder folder;
  write_file(folder.file("config.json"), config);
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  for (const auto& [name, shape] : shapes) {
    tensors.emplace_back(shape, dtype);
    std::fill_n(reinterpret_cast<std::uint8_t*>(tensors.back().view().bytes()),
                tensors.back().view().size_bytes(), 0);
  }
  std::size_t i = 0;
  for (const auto& [name, shape] : shapes) named.push_back({name, tensors[i++]});
  write_safetensors(folder.file("model.safetensors"), named);
  try {
    load_unprocessed_checkpoint(folder.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "";
}

std::string after(const std::function<void(Shapes&)>& change) {
  auto shapes = shapes_of(parse_model_config(Json::parse(kQwen3), "config.json"));
  change(shapes);
  return load_with(shapes);
}

void expect_part(const std::string& complaint, const std::string& part) {
  EXPECT_NE(complaint.find(part), std::string::npos) << "found: " << complaint;
}

TEST(Weights, CompleteCheckpointLoads) {
  EXPECT_EQ(after([](Shapes&) {}), "");
  EXPECT_EQ(after([](Shapes& s) { s["model.layers.0.self_attn.rotary_emb.inv_freq"] = {3}; }), "");
}

TEST(Weights, MissingUnexpectedAndMisshapenTensorsAreNamed) {
  expect_part(after([](Shapes& s) { s.erase("model.layers.1.mlp.up_proj.weight"); }),
              "missing tensor model.layers.1.mlp.up_proj.weight");
  expect_part(after([](Shapes& s) { s.erase("lm_head.weight"); }), "missing tensor lm_head.weight");
  expect_part(after([](Shapes& s) {
                s["model.layers.2.mlp.up_proj.weight"] = {10, 8};
              }),
              "unexpected tensor model.layers.2.mlp.up_proj.weight");
  expect_part(after([](Shapes& s) { s["model.layers.0.self_attn.q_proj.bias"] = {12}; }),
              "unexpected tensor model.layers.0.self_attn.q_proj.bias");
  expect_part(
      after([](Shapes& s) { s["model.layers.0.self_attn.q_norm.weight"] = {5}; }),
      "tensor model.layers.0.self_attn.q_norm.weight has shape [5], config.json asks for [6]");
  expect_part(after([](Shapes& s) { s["model.norm.weight"] = {8, 1}; }), "has shape [8, 1]");
  expect_part(after([](Shapes& s) {
                s = {{"transformer.wte.weight", {12, 8}}};
              }),
              "found no language model");
}

TEST(Weights, UnsupportedDtypesThrow) {
  const auto shapes = shapes_of(parse_model_config(Json::parse(kQwen3), "config.json"));
  expect_part(load_with(shapes, kQwen3, DType::i32), "is int32");
  expect_part(load_with(shapes, kQwen3, DType::f8_e4m3), "no scale");
  for (const auto dtype : {DType::f16, DType::bf16, DType::f64})
    EXPECT_EQ(load_with(shapes, kQwen3, dtype), "");
}

// Attention masks stored by early versions of transformers are ignored; other extra tensors are
// not.
TEST(Weights, StoredAttentionMasksAreIgnored) {
  const std::string config = R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1,
                                 "n_positions": 16, "vocab_size": 12})";
  const auto model = parse_model_config(Json::parse(config), "config.json");
  for (const std::string prefix : {"", "transformer."}) {
    Shapes shapes;
    for (const auto& spec : expected_tensors(model)) shapes[prefix + spec.name] = spec.shape;
    EXPECT_EQ(load_with(shapes, config), "");
    shapes[prefix + "h.0.attn.bias"] = {1, 1, 16, 16};
    shapes[prefix + "h.0.attn.masked_bias"] = {1};
    EXPECT_EQ(load_with(shapes, config), "");
    shapes[prefix + "h.0.attn.q_attn.weight"] = {8, 8};
    expect_part(load_with(shapes, config), "unexpected tensor");
  }
}

std::string with_experts(const std::string& family) {
  auto config = Json::parse(kQwen3);
  config.update(Json::parse(R"({"hidden_size": 32, "intermediate_size": 64, "num_local_experts": 3,
                                "num_experts_per_tok": 2, "moe_intermediate_size": 64})"));
  config["model_type"] = family;
  return config.dump();
}

// One tensor per expert, one for all, or those of GGUF files; errors use the naming of the
// checkpoint.
TEST(Weights, ExpertsLoadFromEveryNamingScheme) {
  const auto config = with_experts("qwen3_moe");
  const auto model = parse_model_config(Json::parse(config), "config.json");
  ASSERT_EQ(model.names.experts.size(), 3u);
  for (const auto& names : model.names.experts) {
    Shapes shapes;
    for (const auto& spec : expected_tensors(model, {.experts = names}))
      shapes["model." + spec.name] = spec.shape;
    shapes["lm_head.weight"] = {12, 32};
    EXPECT_EQ(load_with(shapes, config), "");
    const auto up =
        expert_tensor_name(names.up, 2) + (is_stacked_tensor_name(names.up) ? "" : ".weight");
    const auto name = names.gate_up.empty() ? up : names.gate_up;
    ASSERT_EQ(shapes.erase("model.layers.1." + name), 1u);
    expect_part(load_with(shapes, config), "missing tensor model.layers.1." + name);
  }
}

TEST(Weights, Mxfp4NeedsBytesAndCountsUnpackedParameters) {
  const auto config = with_experts("gpt_oss");
  const auto model = parse_model_config(Json::parse(config), "config.json");
  Shapes shapes;
  for (const auto& spec : expected_tensors(model, {.experts = model.names.experts.back()}))
    shapes["model." + spec.name] = spec.shape;
  shapes["lm_head.weight"] = {12, 32};
  EXPECT_EQ(shapes.at("model.layers.0.mlp.experts.down_proj_blocks"), (Shape{3, 32, 2, 16}));
  expect_part(load_with(shapes, config), "is float32, expected bytes (uint8) of MXFP4");
  const std::int64_t attention = 33 * (12 + 6 + 6) + 32 * 12 + 32 + 2;  // biases, sinks
  const std::int64_t experts = 3 * 33 + 3 * (33 * 2 * 64 + 65 * 32);
  EXPECT_EQ(parameter_count(model), 2 * 12 * 32 + 32 + 2 * (2 * 32 + attention + experts));
}

}  // namespace
}  // namespace qkscope
