// Gemma 2: scaled embeddings, norms that multiply by 1 + weight before and after attention and MLP,
// GELU, soft caps on scores and logits, a sliding window on every other layer. Gemma 3: q/k norm
// instead of the score cap, five sliding layers per full layer, one RoPE per kind of layer. Gemma
// 4: head sizes per layer, KV sharing between layers, norms of v, per-layer inputs.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/numbers.h"
#include "base/io/json.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Reads a soft cap; null switches it off.
double read_soft_cap(const ConfigReader& config, const char* key, double fallback) {
  constexpr ConfigReader::NumberRange kCap{1e-3, 1e9};
  return config.contains_key(key) && !config.has_value(key) ? 0.0
                                                            : config.number(key, fallback, kCap);
}

// Reads the settings that all Gemma versions share; a text_config may omit most of them.
void read_gemma_base(ModelConfig& model, const ConfigReader& config, std::int64_t vocab_size,
                     std::int64_t max_positions, std::int64_t layers = 26) {
  model.n_layers = read_layer_count(config, layers);
  model.d_model = config.positive_integer("hidden_size", 2304);
  model.n_heads = config.positive_integer("num_attention_heads", 8);
  model.n_kv_heads = config.positive_integer("num_key_value_heads", 4);
  model.d_head = config.positive_integer("head_dim", 256);
  model.d_mlp = config.positive_integer("intermediate_size", 9216);
  model.vocab_size = config.positive_integer("vocab_size", vocab_size);
  model.embedding_rows = model.vocab_size;
  model.max_positions = config.positive_integer("max_position_embeddings", max_positions);
  model.norm_eps = config.number("rms_norm_eps", 1e-6, kNormEps);
  model.activation = read_activation(config, "gelu_pytorch_tanh");
  model.tied = config.flag("tie_word_embeddings", true);
  model.layers.assign(static_cast<std::size_t>(model.n_layers), LayerConfig{});
  model.norm_adds_one = true;
  read_attention_bias(model, config, false);
  model.embedding_scale = std::sqrt(static_cast<double>(model.d_model));
  model.attention_scale =
      1.0 / std::sqrt(config.number("query_pre_attn_scalar", 256.0, {1e-6, 1e9}));
  model.names.mlp_norm = "pre_feedforward_layernorm";
  model.names.post_attention_norm = "post_attention_layernorm";
  model.names.post_mlp_norm = "post_feedforward_layernorm";
}

void require_causal_attention(const ConfigReader& config, bool causal) {
  if (!causal)
    reject("{}: use_bidirectional_attention is not supported; only causal models are",
           config.where());
}

// Reads head_dim and num_key_value_heads per layer: from per_layer_config (by layer number, as
// transformers saves it), or from global_head_dim and num_global_key_value_heads for all
// full-attention layers (as in the published checkpoints).
void read_gemma4_heads(ModelConfig& model, const ConfigReader& config) {
  const auto set = [&](LayerConfig& layer, std::int64_t d_head, std::int64_t n_kv_heads) {
    layer.d_head = d_head == model.d_head ? 0 : d_head;
    layer.n_kv_heads = n_kv_heads == model.n_kv_heads ? 0 : n_kv_heads;
  };
  if (!config.contains_key("per_layer_config")) {
    const auto d_head = config.positive_integer("global_head_dim", 512);
    const auto heads = config.positive_integer("num_global_key_value_heads", model.n_kv_heads);
    for (auto& layer : model.layers)
      if (layer.window == 0) set(layer, d_head, layer.v_from_k ? heads : model.n_kv_heads);
    return;
  }
  if (!config.has_value("per_layer_config")) return;
  const auto all = config.section("per_layer_config");
  for (const auto& [number, settings] : config.raw_value("per_layer_config").items()) {
    const auto layer = std::atoll(number.c_str());
    if (std::to_string(layer) != number || layer < 0 || layer >= model.n_layers)
      all.fail(number, fmt::format("the number of a layer from 0 to {}", model.n_layers - 1));
    const auto one = all.section(number);
    for (const auto& [key, value] : settings.items())
      if (key != "head_dim" && key != "num_key_value_heads")
        one.fail(key, "head_dim and num_key_value_heads alone to differ by layer");
    set(model.layers[as_index(layer)], one.positive_integer("head_dim", model.d_head),
        one.positive_integer("num_key_value_heads", model.n_kv_heads));
  }
  for (const auto& layer : model.layers) {
    const auto& first = *std::ranges::find(model.layers, layer.rope, &LayerConfig::rope);
    if (layer.d_head != first.d_head || layer.n_kv_heads != first.n_kv_heads)
      config.fail("per_layer_config", "equal heads in all layers of one type");
  }
}

// Reads the RoPE settings of the kind of attention (full or sliding) that `layer` has.
RopeConfig read_gemma4_rope(const ModelConfig& model, const ConfigReader& config,
                            std::int64_t layer) {
  const bool slides = model.layer(layer).window > 0;
  const std::string kind = slides ? "sliding_attention" : "full_attention";
  Json settings = {{"rope_type", "default"}};
  if (config.has_value("rope_parameters"))
    settings = config.section("rope_parameters").raw_value(kind);
  else if (!slides)
    settings = {
        {"rope_type", "proportional"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.25}};
  const ConfigReader own(settings, config.where() + ": rope_parameters: " + kind);
  const auto part = own.number("partial_rotary_factor", 1.0, {0.0, 1.0});
  RopeConfig rope;
  rope.dim = model.d_head_of(model.layer(layer));
  rope.max_positions = rope.original_max = model.max_positions;
  if (own.string("rope_type", "default") != "proportional") {
    rope = read_rope(rope, own);
    if (part < 1.0 && rope.type != RopeType::standard)  // the default type does not read it
      own.fail("partial_rotary_factor", "1, or the rope_type proportional");
    return rope;
  }
  rope.type = RopeType::proportional;
  rope.theta = own.number("rope_theta", rope.theta, kRopeTheta);
  rope.factor = own.number("factor", 1.0, kScaleFactor);
  rope.rotated_pairs = static_cast<std::int64_t>(part * to_double(rope.dim) / 2.0);
  return rope;
}

// The last num_kv_shared_layers layers reuse the keys and values of the last layer before them with
// the same kind of attention. Checkpoints may still store unused k and v matrices for them.
void read_kv_sharing(ModelConfig& model, const ConfigReader& config) {
  const auto shared = config.non_negative_integer("num_kv_shared_layers", 0);
  for (auto i = std::max<std::int64_t>(model.n_layers - shared, 0); i < model.n_layers; ++i) {
    auto& layer = model.layers[as_index(i)];
    auto source = model.n_layers - shared - 1;
    while (source >= 0 && (model.layer(source).window > 0) != (layer.window > 0)) --source;
    if (source < 0)
      config.fail("num_kv_shared_layers",
                  fmt::format("an earlier layer of the kind of layer {}, whose keys it uses", i));
    layer.kv_layer = source;
    if (config.flag("use_double_wide_mlp", false)) layer.d_mlp = 2 * model.d_mlp;
    for (const char* name : {"k_proj", "v_proj", "k_norm", "v_norm"})
      model.names.unused.push_back(fmt::format("layers.{}.self_attn.{}.", i, name));
  }
}

}  // namespace

void read_gemma2(ModelConfig& model, const ConfigReader& config) {
  read_gemma_base(model, config, 256000, 8192);
  require_causal_attention(config, !config.flag("use_bidirectional_attention", false));
  model.attention_softcap = read_soft_cap(config, "attn_logit_softcapping", 50.0);
  model.logit_softcap = read_soft_cap(config, "final_logit_softcapping", 30.0);
  read_alternating_windows(model, config, 4096);
  model.ropes = {read_llama_rope(model, config, {})};
}

void read_gemma3(ModelConfig& model, const ConfigReader& config) {
  read_gemma_base(model, config, 262208, 131072);
  require_causal_attention(config, !config.flag("use_bidirectional_attention", false));
  model.qk_norm = true;
  model.logit_softcap = config.number("final_logit_softcapping", 0.0, {0.0, 1e9});
  if (config.has_value("attn_logit_softcapping"))
    log::warn(
        "{}: attn_logit_softcapping is not applied, as transformers does not apply it to gemma3",
        config.where());
  // Published config.json files have one of two keys for the period of full-attention layers.
  const bool public_key = config.has_value("sliding_window_pattern");
  read_periodic_windows(
      model, config,
      {.period_key = public_key ? "sliding_window_pattern" : "_sliding_window_pattern",
       .period = 6});
  read_ropes_by_layer_kind(model, config, config.number("rope_theta", 1e6, kRopeTheta),
                           config.number("rope_local_base_freq", 1e4, kRopeTheta));
}

void read_gemma4(ModelConfig& model, const ConfigReader& config) {
  read_gemma_base(model, config, 262144, 131072, 30);
  if (config.flag("enable_moe_block", false))
    reject("{}: enable_moe_block: experts beside the MLP (Gemma 4 26B-A4B) are not supported",
           config.where());
  require_causal_attention(config, config.string("use_bidirectional_attention", "") != "all");
  model.norm_adds_one = false;
  model.attention_scale = 1.0;
  model.qk_norm = model.v_norm = model.layer_scalars = true;
  model.logit_softcap = config.number("final_logit_softcapping", 0.0, {0.0, 1e9});
  read_periodic_windows(model, config, {.period = 6, .window = 512});
  model.layers.back().window = 0;
  for (auto& layer : model.layers) {
    layer.rope = layer.window > 0 ? 1 : 0;
    layer.v_from_k = layer.window == 0 && config.flag("attention_k_eq_v", false);
  }
  read_gemma4_heads(model, config);
  read_kv_sharing(model, config);
  for (const int kind : {0, 1}) {
    const auto first = std::ranges::find(model.layers, kind, &LayerConfig::rope);
    if (first != model.layers.end())
      model.ropes.push_back(read_gemma4_rope(model, config, first - model.layers.begin()));
  }
  model.per_layer.width = config.non_negative_integer("hidden_size_per_layer_input", 256);
  model.per_layer.vocab_size = config.positive_integer("vocab_size_per_layer_input", 262144);
  if (model.per_layer.width > 0 && model.per_layer.vocab_size < model.vocab_size)
    config.fail("vocab_size_per_layer_input", fmt::format("{} or more", model.vocab_size));
}

}  // namespace qkscope
