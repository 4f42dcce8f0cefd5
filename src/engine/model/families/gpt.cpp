// GPT-2, GPT-NeoX and gpt-oss.
#include <cmath>

#include "base/core/error.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Defaults match transformers; GPT-2 has its own names for some keys.
void read_gpt2_sizes(ModelConfig& model, const ConfigReader& config) {
  model.n_layers =
      read_layer_count(config, 12, config.has_value("n_layer") ? "n_layer" : "num_hidden_layers");
  model.d_model = config.positive_integer("n_embd", config.positive_integer("hidden_size", 768));
  model.n_heads =
      config.positive_integer("n_head", config.positive_integer("num_attention_heads", 12));
  model.n_kv_heads = model.n_heads;
  if (model.d_model % model.n_heads != 0)
    bad_input("{}: n_embd {} is not a multiple of {} heads", config.where(), model.d_model,
              model.n_heads);
  model.d_head = model.d_model / model.n_heads;
  model.d_mlp = config.positive_integer("n_inner", 4 * model.d_model);
  model.vocab_size = config.positive_integer("vocab_size", 50257);
  model.embedding_rows = model.vocab_size;
  model.max_positions = config.positive_integer(
      "n_positions", config.positive_integer("max_position_embeddings", 1024));
}

// Some GPT-2 models divide the attention scores of layer i by i + 1.
void read_gpt2_layers(ModelConfig& model, const ConfigReader& config) {
  const bool by_layer = config.flag("scale_attn_by_inverse_layer_idx", false);
  for (std::int64_t i = 0; i < model.n_layers; ++i)
    model.layers.push_back(
        {.rope = -1, .score_scale = by_layer ? 1.0 / static_cast<double>(i + 1) : 1.0});
}

// Reads the RoPE of gpt-oss: YaRN with an original context of 4096 positions by default.
RopeConfig read_gpt_oss_rope(const ModelConfig& model, const ConfigReader& config,
                             const LlamaDefaults& defaults) {
  auto rope = read_llama_rope(model, config, defaults);
  if (config.has_value("rope_scaling") || config.has_value("rope_parameters")) return rope;
  rope.type = RopeType::yarn;
  rope.factor = 32.0;
  rope.original_max = 4096;
  rope.truncate = false;
  return rope;
}

}  // namespace

// GPT-2: learned positions, LayerNorm with bias, matrices stored as (in, out), an ungated MLP.
void read_gpt2(ModelConfig& model, const ConfigReader& config) {
  read_gpt2_sizes(model, config);
  read_gpt2_layers(model, config);
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

// GPT-NeoX and Pythia: LayerNorm with bias, parallel attention and MLP, partial RoPE, one matrix
// that interleaves q, k and v by head, an ungated MLP.
void read_gpt_neox(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config,
                    {.rope_theta = config.number("rotary_emb_base", 10000.0, kRopeTheta),
                     .norm_eps = 1e-5,
                     .norm_eps_key = "layer_norm_eps",
                     .activation = "gelu",
                     .partial_rotary_factor = config.number("rotary_pct", 0.25, {0.0, 1.0})});
  model.norm = NormKind::layer;
  model.norm_bias = true;
  model.parallel_residual = config.flag("use_parallel_residual", true);
  read_attention_bias(model, config, true);
  model.mlp_bias = true;
  auto& names = model.names;
  names.embedding = "embed_in";
  names.final_norm = "final_layer_norm";
  names.head = "embed_out";
  names.qkv = "attention.query_key_value";
  names.qkv_by_head = true;
  names.o = "attention.dense";
  names.gate = "";
  names.up = "mlp.dense_h_to_4h";
  names.down = "mlp.dense_4h_to_h";
  names.buffers = {".attention.bias", ".attention.masked_bias"};
}

// gpt-oss: a mixture of experts with biases and clamped SwiGLU in every layer, learned attention
// sinks, and a sliding window on every other layer. Published in MXFP4.
void read_gpt_oss(ModelConfig& model, const ConfigReader& config) {
  const LlamaDefaults defaults{.rope_theta = 150000.0,
                               .norm_eps = 1e-5,
                               .d_head = 64,
                               .n_kv_heads = 8,
                               .max_positions = 131072};
  read_llama_without_rope(model, config, defaults);
  model.ropes = {read_gpt_oss_rope(model, config, defaults)};
  read_attention_bias(model, config, true);
  read_alternating_windows(model, config, 128);
  model.activation = Activation::clamped_swiglu;
  model.swiglu.alpha = static_cast<float>(config.number("swiglu_alpha", 1.702, {1e-3, 1e3}));
  model.swiglu.limit = static_cast<float>(config.number("swiglu_limit", 7.0, {1e-3, 1e6}));
  read_experts(model, config, {.count = 128, .per_token = 4});
  model.experts.normalized = model.experts.bias = model.experts.router_bias = true;
  model.names.sinks = "self_attn.sinks";
  ExpertNames plain = stacked_expert_names();
  plain.router = "mlp.router";
  plain.transposed = plain.interleaved = true;
  ExpertNames mxfp4 = plain;
  mxfp4.transposed = false;
  mxfp4.mxfp4 = true;
  model.names.experts = {plain, model.names.experts[1], mxfp4};  // [1]: GGUF
}

}  // namespace qkscope
