// GPT-2: learned positions, LayerNorm with bias, matrices stored as (in, out), an ungated MLP.
#include <cmath>

#include "base/core/error.h"
#include "engine/model/family.h"

namespace qkscope {
namespace {

// transformers has a default for every key, and GPT-2 has its own key names.
void read_sizes(ModelConfig& model, const ConfigReader& config) {
  model.n_layers =
      read_layer_count(config, 12, config.has("n_layer") ? "n_layer" : "num_hidden_layers");
  model.d_model = config.count("n_embd", config.count("hidden_size", 768));
  model.n_heads = config.count("n_head", config.count("num_attention_heads", 12));
  model.n_kv_heads = model.n_heads;
  if (model.d_model % model.n_heads != 0)
    bad_input("{}: n_embd {} is not a multiple of {} heads", config.where(), model.d_model,
              model.n_heads);
  model.d_head = model.d_model / model.n_heads;
  model.d_mlp = config.count("n_inner", 4 * model.d_model);
  model.vocab_size = config.count("vocab_size", 50257);
  model.embedding_rows = model.vocab_size;
  model.max_positions = config.count("n_positions", config.count("max_position_embeddings", 1024));
}

// Some models divide the scores of layer i by i + 1.
void read_plain_layers(ModelConfig& model, const ConfigReader& config) {
  const bool by_layer = config.flag("scale_attn_by_inverse_layer_idx", false);
  for (std::int64_t i = 0; i < model.n_layers; ++i)
    model.layers.push_back(
        {.rope = -1, .score_scale = by_layer ? 1.0 / static_cast<double>(i + 1) : 1.0});
}

}  // namespace

void read_gpt2(ModelConfig& model, const ConfigReader& config) {
  read_sizes(model, config);
  read_plain_layers(model, config);
  if (config.flag("add_cross_attention", false))
    bad_input("{}: add_cross_attention is not supported; only decoders alone are", config.where());
  model.norm = NormKind::layer;
  model.norm_eps = config.number("layer_norm_epsilon", 1e-5, kNormEps);
  model.norm_bias = true;
  model.activation = read_activation(config, "gelu_new", "activation_function");
  model.attention_scale = config.flag("scale_attn_weights", true)
                              ? 1.0 / std::sqrt(static_cast<double>(model.d_head))
                              : 1.0;
  model.tied = config.flag("tie_word_embeddings", true);
  model.qkv_bias = model.output_bias = model.mlp_bias = true;
  auto& names = model.names;
  names.embedding = "wte";
  names.positions = "wpe";
  names.layers = "h";
  names.final_norm = "ln_f";
  names.input_norm = "ln_1";
  names.qkv = "attn.c_attn";
  names.o = "attn.c_proj";
  names.mlp_norm = "ln_2";
  names.gate = "";
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  names.transposed = true;
  names.buffers = {".attn.bias", ".attn.masked_bias"};
}

}  // namespace qkscope
