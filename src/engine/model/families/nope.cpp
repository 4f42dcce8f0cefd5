// Families whose layers differ in position encoding: RoPE on some layers, none on others (NoPE).
#include <cmath>

#include "base/core/error.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Despite the name, no_rope_layers is 1 for a layer with RoPE and 0 for a NoPE layer.
void read_nope_layers(ModelConfig& model, const ConfigReader& config) {
  if (!config.has_value("no_rope_layers")) {
    const auto interval = config.positive_integer("no_rope_layer_interval", 4);
    for (std::int64_t i = 0; i < model.n_layers; ++i)
      if ((i + 1) % interval == 0) model.layers[static_cast<std::size_t>(i)].rope = -1;
    return;
  }
  const auto uses_rope = config.integers("no_rope_layers");
  if (uses_rope.size() < model.layers.size())
    bad_input("{}: no_rope_layers has {} entries, expected {} (one per layer)", config.where(),
              uses_rope.size(), model.layers.size());
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    if (uses_rope[i] == 0) model.layers[i].rope = -1;
}

// Without layer_types only NoPE layers get the sliding window, if use_sliding_window is set.
void read_smollm3_windows(ModelConfig& model, const ConfigReader& config) {
  const bool slides =
      config.flag("use_sliding_window", false) && config.has_value("sliding_window");
  const std::int64_t window =
      config.has_value("sliding_window") ? config.positive_integer("sliding_window") : 0;
  if (config.has_value("layer_types")) return read_layer_types(model, config, window);
  for (auto& layer : model.layers)
    if (slides && layer.rope < 0) layer.window = window;
}

// Sliding layers keep RoPE; layers with full attention have no position encoding.
void remove_rope_of_full_layers(ModelConfig& model) {
  for (auto& layer : model.layers) layer.rope = layer.window > 0 ? 0 : -1;
}

}  // namespace

// SmolLM3: Llama without RoPE on some layers (NoPE); embeddings are tied by default.
void read_smollm3(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.rope_theta = 2e6, .tied = true, .max_positions = 32768});
  read_attention_bias(model, config, false);
  model.mlp_bias = config.flag("mlp_bias", false);
  read_nope_layers(model, config);
  read_smollm3_windows(model, config);
}

// Cohere 2: parallel attention and MLP that share one LayerNorm without bias, interleaved RoPE on
// the sliding layers, scaled logits.
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
  remove_rope_of_full_layers(model);
}

// EXAONE 4: norms on the outputs of attention and MLP instead of their inputs, q/k norm. Models
// without sliding layers have RoPE everywhere.
void read_exaone4(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.norm_eps = 1e-5});
  model.qk_norm = true;
  model.names.input_norm = model.names.mlp_norm = "";
  model.names.post_attention_norm = "post_attention_layernorm";
  model.names.post_mlp_norm = "post_feedforward_layernorm";
  read_periodic_windows(model, config, {.period_key = "sliding_window_pattern"});
  if (!config.contains_key("sliding_window") || config.has_value("sliding_window"))
    remove_rope_of_full_layers(model);
}

// AFMoE (Trinity): RoPE on sliding layers, q/k norm, a sigmoid gate on the output of attention,
// norms before and after attention and MLP, experts with a biased sigmoid router after the dense
// layers.
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
  remove_rope_of_full_layers(model);
  read_experts(model, config, {.count = 64, .per_token = 6, .d_mlp = 1408});
  read_biased_router(model, config, "route_scale", "mlp.expert_bias");
  for (auto& names : model.names.experts) names.router = "mlp.router.gate";
  read_shared_experts(model, config, "num_shared_experts", 2);
  const auto dense = config.non_negative_integer("num_dense_layers", 1);
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    model.layers[i].experts = static_cast<std::int64_t>(i) >= dense;
}

}  // namespace qkscope
