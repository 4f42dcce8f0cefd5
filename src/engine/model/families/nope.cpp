// Families whose layers differ in position encoding: RoPE on some layers, none on others (NoPE).
#include <algorithm>
#include <cmath>

#include "base/core/error.h"
#include "base/io/json.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

void read_nope_interval(ModelConfig& model, const ConfigReader& config) {
  const auto interval = config.positive_integer("no_rope_layer_interval", 4);
  for (std::int64_t i = 0; i < model.n_layers; ++i)
    if ((i + 1) % interval == 0) model.layers[static_cast<std::size_t>(i)].rope = -1;
}

// Despite the name, no_rope_layers is 1 for a layer with RoPE and 0 for a NoPE layer.
void read_nope_layers(ModelConfig& model, const ConfigReader& config) {
  if (!config.has_value("no_rope_layers")) return read_nope_interval(model, config);
  const auto uses_rope = config.integers("no_rope_layers");
  if (uses_rope.size() < model.layers.size())
    reject("{}: no_rope_layers has {} entries, expected {} (one per layer)", config.where(),
           uses_rope.size(), model.layers.size());
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    if (uses_rope[i] == 0) model.layers[i].rope = -1;
}

// Sets the windows of SmolLM3: from layer_types, or on NoPE layers if use_sliding_window is set.
void read_smollm3_windows(ModelConfig& model, const ConfigReader& config) {
  const bool slides =
      config.flag("use_sliding_window", false) && config.has_value("sliding_window");
  const std::int64_t window =
      config.has_value("sliding_window") ? config.positive_integer("sliding_window") : 0;
  if (config.has_value("layer_types")) return read_layer_types(model, config, window);
  for (auto& layer : model.layers)
    if (slides && layer.rope < 0) layer.window = window;
}

// Layers with a sliding window keep RoPE; layers with full attention have no position encoding.
void remove_full_attention_rope(ModelConfig& model) {
  for (auto& layer : model.layers) layer.rope = layer.window > 0 ? 0 : -1;
}

// Layers with RoPE use chunked attention, unless layer_types says otherwise.
void read_chunked_attention(ModelConfig& model, const ConfigReader& config) {
  const bool listed = config.has_value("layer_types");
  const auto types = listed ? config.strings("layer_types") : std::vector<std::string>();
  if (listed && types.size() < model.layers.size())
    reject("{}: layer_types has {} entries, expected {}", config.where(), types.size(),
           model.layers.size());
  const bool off =
      config.contains_key("attention_chunk_size") && !config.has_value("attention_chunk_size");
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const bool chunked = listed ? types[i] == "chunked_attention" : model.layers[i].rope >= 0;
    if (listed && !chunked && types[i] != "full_attention")
      reject("{}: layer_types[{}] is '{}', expected full_attention or chunked_attention",
             config.where(), i, types[i]);
    if (chunked && off) config.fail("attention_chunk_size", "a positive integer");
    if (chunked) model.layers[i].chunk = config.positive_integer("attention_chunk_size", 8192);
  }
}

// Llama 4: one routed expert per token, whose input is multiplied by the sigmoid of its logit, and
// a shared expert. Dense layers have a separate MLP width.
void read_llama4_experts(ModelConfig& model, const ConfigReader& config) {
  read_experts(model, config, {.count = 16, .per_token = 1});
  model.experts.sigmoid = model.experts.scales_input = true;
  model.experts.shared_d_mlp = model.d_mlp;
  model.d_mlp = config.positive_integer("intermediate_size_mlp", 16384);
  ExpertNames gguf = model.names.experts[1];  // as read_experts orders them
  gguf.shared = "mlp.shared_experts";
  model.names.experts = {{.router = "feed_forward.router",
                          .shared = "feed_forward.shared_expert",
                          .gate_up = "feed_forward.experts.gate_up_proj",
                          .down = "feed_forward.experts.down_proj",
                          .transposed = true},
                         gguf};
  for (auto* name : {&model.names.gate, &model.names.up, &model.names.down})
    name->replace(0, std::string("mlp").size(), "feed_forward");
  const auto step = config.positive_integer("interleave_moe_layer_step", 1);
  const bool listed = config.has_value("moe_layers");
  const auto chosen = listed ? config.integers("moe_layers") : std::vector<std::int64_t>();
  for (std::int64_t i = 0; i < model.n_layers; ++i)
    model.layers[static_cast<std::size_t>(i)].experts =
        listed ? std::ranges::find(chosen, i) != chosen.end() : (i + 1) % step == 0;
}

}  // namespace

// SmolLM3: Llama without RoPE on some layers (NoPE); embeddings are tied by default.
void read_smollm3(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config,
                    {.rope_theta = 2e6, .tied = true, .n_kv_heads = 4, .max_positions = 32768});
  read_attention_bias(model, config, false);
  model.mlp_bias = config.flag("mlp_bias", false);
  read_nope_layers(model, config);
  read_smollm3_windows(model, config);
}

// Cohere 2: parallel attention and MLP after one LayerNorm, RoPE on sliding layers, scaled logits.
void read_cohere2(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(
      model, config,
      {.norm_eps = 1e-5, .norm_eps_key = "layer_norm_eps", .tied = true, .max_positions = 8192});
  model.norm = NormKind::layer;
  model.parallel_residual = true;
  model.rope_interleaved = true;
  model.logit_scale = config.number("logit_scale", 0.0625, kScaleFactor);
  model.names.mlp_norm = model.names.input_norm;
  read_attention_bias(model, config, false);
  read_periodic_windows(model, config, {.period_key = "sliding_window_pattern"});
  remove_full_attention_rope(model);
}

// EXAONE 4: post-norms, q/k norm. Models without sliding layers have RoPE everywhere.
void read_exaone4(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.norm_eps = 1e-5});
  model.qk_norm = true;
  model.names.input_norm = model.names.mlp_norm = "";
  model.names.post_attention_norm = "post_attention_layernorm";
  model.names.post_mlp_norm = "post_feedforward_layernorm";
  read_periodic_windows(model, config, {.period_key = "sliding_window_pattern"});
  if (!config.contains_key("sliding_window") || config.has_value("sliding_window"))
    remove_full_attention_rope(model);
}

// AFMoE (Trinity): RoPE on sliding layers, q/k norm, a sigmoid gate on the output of attention,
// pre- and post-norms, experts with a biased sigmoid router after the dense layers.
void read_afmoe(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.norm_eps = 1e-5, .d_head = 128, .max_positions = 16384});
  read_attention_bias(model, config, false);
  model.qk_norm = true;
  if (config.flag("mup_enabled", false))
    model.embedding_scale = std::sqrt(static_cast<double>(model.d_model));
  model.names.attention_gate = "self_attn.gate_proj";
  model.names.post_attention_norm = "post_attention_layernorm";
  model.names.mlp_norm = "pre_mlp_layernorm";
  model.names.post_mlp_norm = "post_mlp_layernorm";
  read_periodic_windows(model, config,
                        {.period_key = "global_attn_every_n_layers", .window = 1024});
  remove_full_attention_rope(model);
  read_experts(model, config, {.count = 64, .per_token = 6, .d_mlp = 1408});
  read_biased_router(model, config, "route_scale", "mlp.expert_bias");
  for (auto& names : model.names.experts) names.router = "mlp.router.gate";
  read_shared_experts(model, config, "num_shared_experts", 2);
  read_first_dense_layers(model, config, 1, "num_dense_layers");
}

// Llama 4: layers with interleaved RoPE have chunked attention, and after RoPE a q/k norm without
// weights; NoPE layers have full attention, with queries that grow with the log of the position.
void read_llama4(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config,
                    {.rope_theta = 5e5,
                     .norm_eps = 1e-5,
                     .d_head = 128,
                     .n_kv_heads = 8,
                     .max_positions = 4096 * 32});
  read_attention_bias(model, config, false);
  model.rope_interleaved = true;
  model.rotated_qk_norm = config.flag("use_qk_norm", true);
  model.names.q_norm = model.names.k_norm = "";
  if (config.has_value("no_rope_layers") && config.integers("no_rope_layers").empty())
    read_nope_interval(model, config);
  else
    read_nope_layers(model, config);
  read_chunked_attention(model, config);
  // The first published config.json files have attn_temperature_tuning: 4 instead of true.
  const char* const tuning = "attn_temperature_tuning";
  if (config.has_value(tuning) && config.raw_value(tuning).is_number()
          ? config.non_negative_integer(tuning, 1) > 0
          : config.flag(tuning, true))
    model.query_scaling = QueryScaling{.beta = config.number("attn_scale", 0.1, {0.0, 1e3}),
                                       .original_max = config.positive_integer("floor_scale", 8192),
                                       .without_rope = true,
                                       .shift = 1};
  read_llama4_experts(model, config);
}

}  // namespace qkscope
