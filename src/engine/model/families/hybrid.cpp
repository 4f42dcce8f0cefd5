// Families whose layers alternate attention with the linear recurrence of a gated delta net.
#include <algorithm>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Reads layer_types. Without it, every `period`-th layer has attention, and the last one if none
// has. Layers without attention have no position encoding.
void read_mixers(ModelConfig& model, const ConfigReader& config, std::int64_t period) {
  std::vector<std::string> types;
  if (config.has_value("layer_types")) types = config.strings("layer_types");
  for (std::int64_t i = 0; types.empty() && i < model.n_layers; ++i)
    model.layers[as_index(i)].mixer = (i + 1) % period == 0 ? Mixer::attention : Mixer::gated_delta;
  if (!types.empty() && types.size() < model.layers.size())
    bad_input("{}: layer_types has {} entries, expected {}", config.where(), types.size(),
              model.layers.size());
  for (std::size_t i = 0; !types.empty() && i < model.layers.size(); ++i) {
    if (types[i] != "linear_attention" && types[i] != "full_attention")
      bad_input("{}: layer_types[{}] is '{}', expected full_attention or linear_attention",
                config.where(), i, types[i]);
    model.layers[i].mixer = types[i] == "full_attention" ? Mixer::attention : Mixer::gated_delta;
  }
  if (std::ranges::none_of(model.layers, &LayerConfig::has_attention)) {
    if (!types.empty()) config.fail("layer_types", "at least one layer with full_attention");
    model.layers.back().mixer = Mixer::attention;
  }
  for (auto& layer : model.layers)
    if (!layer.has_attention()) layer.rope = -1;
}

// Reads the sizes of the gated delta nets; `defaults` are those of the family.
void read_gated_delta(ModelConfig& model, const ConfigReader& config, GatedDeltaConfig defaults) {
  constexpr std::int64_t kMostTaps = 16;  // ops/gated_delta.cpp
  constexpr std::int64_t kWidest = 65536;
  auto& delta = model.delta = defaults;
  const auto read = [&](const char* key, std::int64_t fallback) {
    const auto value = config.positive_integer(key, fallback);
    if (value > kWidest) config.fail(key, fmt::format("at most {}", kWidest));
    return value;
  };
  delta.key_heads = read("linear_num_key_heads", defaults.key_heads);
  delta.value_heads = read("linear_num_value_heads", defaults.value_heads);
  if (delta.value_heads % delta.key_heads != 0)
    config.fail("linear_num_value_heads",
                fmt::format("a multiple of the {} key heads", delta.key_heads));
  if (defaults.d_key == 0)  // OLMo Hybrid
    defaults.d_key = 3 * model.d_model / (4 * delta.key_heads);
  delta.d_key = read("linear_key_head_dim", defaults.d_key);
  delta.d_value =
      read("linear_value_head_dim", defaults.d_value > 0 ? defaults.d_value : 2 * delta.d_key);
  delta.taps = config.positive_integer("linear_conv_kernel_dim", defaults.taps);
  if (delta.taps < 2 || delta.taps > kMostTaps)
    config.fail("linear_conv_kernel_dim", fmt::format("an integer from 2 to {}", kMostTaps));
  if (model.activation != Activation::silu)
    config.fail("hidden_act", "silu, the activation of the convolution");
}

// A rope_theta of null, as published models have it, means no RoPE; without the key there is RoPE
// with the default base, as in transformers.
bool has_null_theta(const ConfigReader& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (config.has_value(key) && config.section(key).contains_key("rope_theta"))
      return !config.section(key).has_value("rope_theta");
  return config.contains_key("rope_theta") && !config.has_value("rope_theta");
}

constexpr GatedDeltaConfig kQwenDelta{
    .key_heads = 16, .value_heads = 32, .d_key = 128, .d_value = 128};

// Reads the settings that Qwen3-Next and Qwen3.5 share: norms that add one, partial RoPE, and a
// gate on the output of attention whose rows alternate with those of q.
void read_qwen_hybrid(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config,
                    {.d_head = 256, .partial_rotary_factor = 0.25, .max_positions = 32768});
  model.norm_adds_one = true;
  model.qk_norm = true;
  read_attention_bias(model, config, false);
  model.names.attention_gate = model.names.q;
  model.names.unused = {"mtp."};
  read_mixers(model, config, config.positive_integer("full_attention_interval", 4));
  read_gated_delta(model, config, kQwenDelta);
  model.delta.norm_eps = model.norm_eps;
}

}  // namespace

// Qwen3-Next: three of four layers are gated delta nets; experts with a gated shared expert.
void read_qwen3_next(ModelConfig& model, const ConfigReader& config) {
  read_qwen_hybrid(model, config);
  model.names.delta = {{.qkvz = "linear_attn.in_proj_qkvz", .ba = "linear_attn.in_proj_ba"}};
  if (config.non_negative_integer("num_experts", 512) == 0) return;
  read_experts(model, config, {.count = 512, .per_token = 10, .d_mlp = 512});
  model.experts.normalized = config.flag("norm_topk_prob", true);
  model.experts.shared_d_mlp = config.positive_integer("shared_expert_intermediate_size", 512);
  for (auto& names : model.names.experts) {
    names.shared = "mlp.shared_expert";
    names.shared_gate = "mlp.shared_expert_gate";
  }
  read_sparse_layers(model, config);
}

// Qwen3.5: Qwen3-Next with an MLP, and q, k and v of the delta nets in one matrix. Text has one
// position per token, so that its multimodal RoPE is the ordinary one.
void read_qwen3_5(ModelConfig& model, const ConfigReader& config) {
  read_qwen_hybrid(model, config);
  model.names.delta = {{.qkv = "linear_attn.in_proj_qkv",
                        .z = "linear_attn.in_proj_z",
                        .b = "linear_attn.in_proj_b",
                        .a = "linear_attn.in_proj_a"}};
}

// OLMo Hybrid: gated delta nets with norms before mixer and MLP, and OLMo 3's attention with norms
// after them. Published models have no RoPE on any layer.
void read_olmo_hybrid(ModelConfig& model, const ConfigReader& config) {
  const LlamaDefaults defaults{.max_positions = 65536};
  read_llama_without_rope(model, config, defaults);
  model.qk_norm = model.qk_norm_whole = true;
  read_attention_bias(model, config, false);
  model.names.input_norm = model.names.mlp_norm = "";
  model.names.post_attention_norm = "post_attention_layernorm";
  model.names.post_mlp_norm = "post_feedforward_layernorm";
  model.names.unused = {"mtp."};
  read_mixers(model, config, 4);
  read_gated_delta(model, config, {.key_heads = model.n_heads, .value_heads = model.n_heads});
  model.delta.norm_eps = 1e-5;  // constant in the reference implementation
  model.delta.rate_scale = config.flag("linear_allow_neg_eigval", true) ? 2.0 : 1.0;
  GatedDeltaNames names{.q = "linear_attn.q_proj",
                        .k = "linear_attn.k_proj",
                        .v = "linear_attn.v_proj",
                        .z = "linear_attn.g_proj",
                        .b = "linear_attn.b_proj",
                        .a = "linear_attn.a_proj",
                        .norm = "linear_attn.o_norm",
                        .output = "linear_attn.o_proj"};
  auto published = names;
  published.input_norm = "attention_layer_norm";
  published.mlp_norm = "feedforward_layer_norm";
  published.convolutions = {"linear_attn.q_conv1d", "linear_attn.k_conv1d", "linear_attn.v_conv1d"};
  names.post_attention_norm = published.post_attention_norm = "post_attention_layernorm";
  auto saved = published;  // as transformers writes a model that it has read
  saved.post_attention_norm = published.mlp_norm;
  saved.even_convolutions = true;
  model.names.delta = {published, saved, names};
  if (has_null_theta(config))
    for (auto& layer : model.layers) layer.rope = -1;
  else
    model.ropes = {read_llama_rope(model, config, defaults)};
}

}  // namespace qkscope
