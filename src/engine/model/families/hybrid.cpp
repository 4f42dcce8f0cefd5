// Families whose layers alternate attention with gated delta nets or short convolutions.
#include <algorithm>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Reads which layers are gated delta nets from layer_types. Without that key, every `period`-th
// layer has attention; a model with fewer than `period` layers has attention in its last layer.
void read_gated_delta_layers(ModelConfig& model, const ConfigReader& config, std::int64_t period) {
  if (config.has_value("layer_types"))
    return read_layer_mixers(model, config, "linear_attention", Mixer::gated_delta);
  for (std::int64_t i = 0; i < model.n_layers; ++i)
    if ((i + 1) % period != 0) set_mixer(model.layers[as_index(i)], Mixer::gated_delta);
  if (std::ranges::none_of(model.layers, &LayerConfig::has_attention)) {
    model.layers.back().mixer = Mixer::attention;
    model.layers.back().rope = 0;
  }
}

// Reads the sizes of the gated delta nets; `defaults` are the family's default sizes.
void read_gated_delta_sizes(ModelConfig& model, const ConfigReader& config, MixerConfig defaults) {
  constexpr std::int64_t kWidest = 65536;
  auto& delta = model.mixer = defaults;
  delta.kind = Mixer::gated_delta;
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
  delta.taps = read_convolution_kernel_size(config, "linear_conv_kernel_dim", defaults.taps);
  if (model.activation != Activation::silu)
    config.fail("hidden_act", "silu, the activation of the convolution");
}

// A rope_theta of null, as in published models, disables RoPE; an absent key means the default.
bool has_null_rope_theta(const ConfigReader& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (config.has_value(key) && config.section(key).contains_key("rope_theta"))
      return !config.section(key).has_value("rope_theta");
  return config.contains_key("rope_theta") && !config.has_value("rope_theta");
}

constexpr MixerConfig kQwenDelta{.key_heads = 16, .value_heads = 32, .d_key = 128, .d_value = 128};

// Reads the settings that Qwen3-Next and Qwen3.5 share: norms that multiply by 1 + weight, partial
// RoPE, and an attention output gate, whose rows are interleaved by head with those of q.
void read_qwen_hybrid(ModelConfig& model, const ConfigReader& config, std::int64_t n_kv_heads) {
  read_llama_config(model, config,
                    {.d_head = 256,
                     .n_kv_heads = n_kv_heads,
                     .partial_rotary_factor = 0.25,
                     .max_positions = 32768});
  model.norm_adds_one = true;
  model.qk_norm = true;
  read_attention_bias(model, config, false);
  model.names.attention_gate = model.names.q;
  model.names.unused = {"mtp."};
  read_gated_delta_layers(model, config, config.positive_integer("full_attention_interval", 4));
  read_gated_delta_sizes(model, config, kQwenDelta);
  model.mixer.norm_eps = model.norm_eps;
}

}  // namespace

void set_mixer(LayerConfig& layer, Mixer mixer) {
  layer.mixer = mixer;
  layer.rope = -1;
}

void read_layer_mixers(ModelConfig& model, const ConfigReader& config, const std::string& name,
                       Mixer mixer, const char* key) {
  const auto types = config.strings(key);
  if (types.size() < model.layers.size())
    reject("{}: {} has {} entries, expected {}", config.where(), key, types.size(),
           model.layers.size());
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const bool older = mixer == Mixer::mamba2 && (types[i] == "mamba" || types[i] == "attention");
    if (types[i] != name && types[i] != "full_attention" && !older)
      reject("{}: {}[{}] is '{}', expected full_attention or {}", config.where(), key, i, types[i],
             name);
    if (types[i] == name || types[i] == "mamba") set_mixer(model.layers[i], mixer);
  }
  if (std::ranges::none_of(model.layers, &LayerConfig::has_attention))
    config.fail(key, "at least one layer with full_attention");
}

std::int64_t read_convolution_kernel_size(const ConfigReader& config, const char* key,
                                          std::int64_t fallback) {
  constexpr std::int64_t kMostTaps = 16;  // ops/mixer.cpp
  const auto taps = config.positive_integer(key, fallback);
  if (taps < 2 || taps > kMostTaps)
    config.fail(key, fmt::format("an integer from 2 to {}", kMostTaps));
  return taps;
}

// Qwen3-Next: gated delta nets in 3 of every 4 layers; routed experts and a gated shared expert.
void read_qwen3_next(ModelConfig& model, const ConfigReader& config) {
  read_qwen_hybrid(model, config, 2);
  model.names.mixer = {{.qkvz = "linear_attn.in_proj_qkvz", .ba = "linear_attn.in_proj_ba"},
                       {.ba = "linear_attn.in_proj_ba",  // GGUF
                        .qkv = "linear_attn.in_proj_qkv",
                        .z = "linear_attn.in_proj_z"}};
  if (config.non_negative_integer("num_experts", 512) == 0) return;
  read_experts(model, config, {.count = 512, .per_token = 10, .d_mlp = 512});
  model.experts.normalized = config.flag("norm_topk_prob", true);
  model.experts.shared_d_mlp = config.positive_integer("shared_expert_intermediate_size", 512);
  for (auto& names : model.names.experts) {
    names.shared = "mlp.shared_expert";
    names.shared_gate = "mlp.shared_expert_gate";
  }
  read_expert_layers(model, config);
}

// Qwen3.5: Qwen3-Next with a dense MLP, and with q, k and v of the delta nets in one matrix. For
// text, where every token has a single position, multimodal RoPE equals standard RoPE.
void read_qwen3_5(ModelConfig& model, const ConfigReader& config) {
  read_qwen_hybrid(model, config, 4);
  model.names.mixer = {{.qkv = "linear_attn.in_proj_qkv",
                        .z = "linear_attn.in_proj_z",
                        .b = "linear_attn.in_proj_b",
                        .a = "linear_attn.in_proj_a"}};
}

// OLMo Hybrid: gated delta nets with pre-norms; attention with post-norms, published without RoPE.
void read_olmo_hybrid(ModelConfig& model, const ConfigReader& config) {
  const LlamaDefaults defaults{.max_positions = 65536};
  read_llama_config_without_rope(model, config, defaults);
  model.qk_norm = model.qk_norm_whole = true;
  read_attention_bias(model, config, false);
  model.names.input_norm = model.names.mlp_norm = "";
  model.names.post_attention_norm = "post_attention_layernorm";
  model.names.post_mlp_norm = "post_feedforward_layernorm";
  model.names.unused = {"mtp."};
  read_gated_delta_layers(model, config, 4);
  read_gated_delta_sizes(model, config, {.key_heads = model.n_heads, .value_heads = model.n_heads});
  model.mixer.norm_eps = 1e-5;  // constant in the reference implementation
  model.mixer.rate_scale = config.flag("linear_allow_neg_eigval", true) ? 2.0 : 1.0;
  MixerNames names{.q = "linear_attn.q_proj",
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
  auto saved = published;  // names in checkpoints saved by transformers
  saved.post_attention_norm = published.mlp_norm;
  saved.even_convolutions = true;
  model.names.mixer = {published, saved, names};
  if (has_null_rope_theta(config))
    for (auto& layer : model.layers) layer.rope = -1;
  else
    model.ropes = {read_llama_rope(model, config, defaults)};
}

// LFM2: short convolutions, and attention with q/k norm in some layers. The MLP width may be two
// thirds of intermediate_size, rounded up to a multiple of block_multiple_of.
void read_lfm2(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(
      model, config,
      {.rope_theta = 1e6,
       .norm_eps = 1e-5,
       .norm_eps_key = "norm_eps",
       .tied = true,
       .n_kv_heads = 8,
       .d_mlp_key = config.has_value("block_ff_dim") ? "block_ff_dim" : "intermediate_size",
       .max_positions = 128000});
  model.activation = Activation::silu;
  model.tied = config.flag("tie_embedding", model.tied);
  model.qk_norm = true;
  if (config.flag("block_auto_adjust_ff_dim", true)) {
    const double factor = config.number("block_ffn_dim_multiplier", 1.0, kScaleFactor);
    const auto unit = config.positive_integer("block_multiple_of", 256);
    const auto two_thirds = 2 * model.d_mlp / 3;
    const auto adjusted = to_double(two_thirds) * factor;
    model.d_mlp = (static_cast<std::int64_t>(adjusted) + unit - 1) / unit * unit;
  }
  if (config.has_value("layer_types")) {
    read_layer_mixers(model, config, "conv", Mixer::short_convolution);
  } else if (config.has_value("full_attn_idxs")) {
    const auto attention = config.integers("full_attn_idxs");
    for (std::int64_t i = 0; i < model.n_layers; ++i)
      if (std::ranges::find(attention, i) == attention.end())
        set_mixer(model.layers[as_index(i)], Mixer::short_convolution);
    if (std::ranges::none_of(model.layers, &LayerConfig::has_attention))
      config.fail("full_attn_idxs", "at least one layer of the model");
  }
  auto& names = model.names;
  names.input_norm = "operator_norm";
  names.mlp_norm = "ffn_norm";
  names.q_norm = "self_attn.q_layernorm";
  names.k_norm = "self_attn.k_layernorm";
  names.o = "self_attn.out_proj";
  names.gate = "feed_forward.w1";
  names.up = "feed_forward.w3";
  names.down = "feed_forward.w2";
  names.final_norm = "embedding_norm";
  if (std::ranges::none_of(model.layers, &LayerConfig::has_state)) return;
  const bool bias = config.flag("conv_bias", false);
  model.mixer = {.kind = Mixer::short_convolution,
                 .value_heads = 1,
                 .d_value = model.d_model,
                 .taps = read_convolution_kernel_size(config, "conv_L_cache", 3),
                 .input_bias = bias,
                 .convolution_bias = bias,
                 .output_bias = bias};
  names.mixer = {{.input_norm = names.input_norm,
                  .mlp_norm = names.mlp_norm,
                  .all = "conv.in_proj",
                  .convolutions = {"conv.conv"},
                  .output = "conv.out_proj"}};
}

}  // namespace qkscope
