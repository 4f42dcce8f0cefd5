// Gemma 2: scaled embeddings, norms that multiply by 1 + weight before and after attention and MLP,
// GELU, soft caps on scores and logits, a sliding window on every other layer. Gemma 3: q/k norm
// instead of the score cap, five sliding layers per full layer, one RoPE per kind of layer.
#include <cmath>

#include "base/core/error.h"
#include "base/core/log.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Reads a soft cap; null switches it off.
double read_soft_cap(const ConfigReader& config, const char* key, double fallback) {
  constexpr ConfigReader::NumberRange kCap{1e-3, 1e9};
  return config.contains_key(key) && !config.has_value(key) ? 0.0
                                                            : config.number(key, fallback, kCap);
}

// Settings that Gemma 2 and 3 share; a text_config may omit most of them.
void read_gemma_base(ModelConfig& model, const ConfigReader& config, std::int64_t vocab_size,
                     std::int64_t max_positions) {
  model.n_layers = read_layer_count(config, 26);
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
  if (config.flag("use_bidirectional_attention", false))
    bad_input("{}: use_bidirectional_attention is not supported; only causal models are",
              config.where());
}

}  // namespace

void read_gemma2(ModelConfig& model, const ConfigReader& config) {
  read_gemma_base(model, config, 256000, 8192);
  model.attention_softcap = read_soft_cap(config, "attn_logit_softcapping", 50.0);
  model.logit_softcap = read_soft_cap(config, "final_logit_softcapping", 30.0);
  read_alternating_windows(model, config, 4096);
  model.ropes = {read_llama_rope(model, config, {})};
}

void read_gemma3(ModelConfig& model, const ConfigReader& config) {
  read_gemma_base(model, config, 262208, 131072);
  model.qk_norm = true;
  model.logit_softcap = config.number("final_logit_softcapping", 0.0, {0.0, 1e9});
  if (config.has_value("attn_logit_softcapping"))
    log::warn(
        "{}: attn_logit_softcapping is not applied, as transformers does not apply it to gemma3",
        config.where());
  // Published config.json files have two keys for the period of full-attention layers.
  const bool public_key = config.has_value("sliding_window_pattern");
  read_periodic_windows(
      model, config,
      {.period_key = public_key ? "sliding_window_pattern" : "_sliding_window_pattern",
       .period = 6});
  read_ropes_by_layer_kind(model, config, config.number("rope_theta", 1e6, kRopeTheta),
                           config.number("rope_local_base_freq", 1e4, kRopeTheta));
}

}  // namespace qkscope
