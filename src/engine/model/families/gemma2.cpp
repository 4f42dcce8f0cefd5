// Gemma 2: scaled embeddings, norms that multiply by 1 + weight and stand before and after both
// halves of a layer, GELU, soft caps on scores and logits; every other layer slides.
#include <cmath>

#include "base/core/error.h"
#include "engine/model/family.h"
#include "engine/model/rope_reader.h"

namespace qkscope {
namespace {

// null switches a cap off, and so does leaving it out in a family that has none by default.
double read_cap(const ConfigReader& config, const char* key, double otherwise) {
  constexpr ConfigReader::Range kCap{1e-3, 1e9};
  return config.mentions(key) && !config.has(key) ? 0.0 : config.number(key, otherwise, kCap);
}

void read_alternating_layers(ModelConfig& model, const ConfigReader& config) {
  const auto window = config.count("sliding_window", 4096);
  if (config.has("layer_types")) return read_layer_types(model, config, window);
  for (std::size_t i = 0; i < model.layers.size(); i += 2) model.layers[i].window = window;
}

}  // namespace

void read_gemma_base(ModelConfig& model, const ConfigReader& config,
                     const GemmaDefaults& defaults) {
  model.n_layers = read_layer_count(config, 26);
  model.d_model = config.count("hidden_size", 2304);
  model.n_heads = config.count("num_attention_heads", 8);
  model.n_kv_heads = config.count("num_key_value_heads", 4);
  model.d_head = config.count("head_dim", 256);
  model.d_mlp = config.count("intermediate_size", 9216);
  model.vocab_size = config.count("vocab_size", defaults.vocab_size);
  model.embedding_rows = model.vocab_size;
  model.max_positions = config.count("max_position_embeddings", defaults.max_positions);
  model.norm_eps = config.number("rms_norm_eps", 1e-6, kNormEps);
  model.activation = read_activation(config, "gelu_pytorch_tanh");
  model.tied = config.flag("tie_word_embeddings", true);
  model.layers.assign(static_cast<std::size_t>(model.n_layers), LayerConfig{});
  model.norm_adds_one = true;
  model.qkv_bias = config.flag("attention_bias", false);
  model.output_bias = model.qkv_bias;
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

void read_gemma2(ModelConfig& model, const ConfigReader& config) {
  read_gemma_base(model, config, {.vocab_size = 256000, .max_positions = 8192});
  model.attention_softcap = read_cap(config, "attn_logit_softcapping", 50.0);
  model.logit_softcap = read_cap(config, "final_logit_softcapping", 30.0);
  read_alternating_layers(model, config);
  model.ropes = {read_llama_rope(model, config, {})};
}

}  // namespace qkscope
