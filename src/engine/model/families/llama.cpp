// Llama, families that differ from Llama in a few settings (Qwen, Mistral, OLMo and others), GPT-2,
// GPT-NeoX and gpt-oss.
#include <cmath>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Reads the settings of OLMo 2 and 3 other than RoPE.
void read_olmo2_without_rope(ModelConfig& model, const ConfigReader& config) {
  read_llama_config_without_rope(model, config, {.norm_eps = 1e-5});
  model.qk_norm = true;
  model.qk_norm_whole = true;
  read_attention_bias(model, config, false);
  model.names.input_norm = "";
  model.names.mlp_norm = "";
  model.names.post_attention_norm = "post_attention_layernorm";
  model.names.post_mlp_norm = "post_feedforward_layernorm";
}

// Reads the sizes of GPT-2, some from config keys of its own. Defaults match transformers.
void read_gpt2_sizes(ModelConfig& model, const ConfigReader& config) {
  model.n_layers =
      read_layer_count(config, 12, config.has_value("n_layer") ? "n_layer" : "num_hidden_layers");
  model.d_model = config.positive_integer("n_embd", config.positive_integer("hidden_size", 768));
  model.n_heads =
      config.positive_integer("n_head", config.positive_integer("num_attention_heads", 12));
  model.n_kv_heads = model.n_heads;
  if (model.d_model % model.n_heads != 0)
    reject("{}: n_embd {} is not a multiple of {} heads", config.where(), model.d_model,
           model.n_heads);
  model.d_head = model.d_model / model.n_heads;
  model.d_mlp = config.positive_integer("n_inner", 4 * model.d_model);
  model.vocab_size = config.positive_integer("vocab_size", 50257);
  model.embedding_rows = model.vocab_size;
  model.max_positions = config.positive_integer(
      "n_positions", config.positive_integer("max_position_embeddings", 1024));
}

// Qwen: if use_sliding_window is set, sliding_window applies to layers >= max_window_layers.
void read_upper_layer_windows(ModelConfig& model, const ConfigReader& config) {
  const bool slides = config.flag("use_sliding_window", false);
  const std::int64_t window = slides ? config.positive_integer("sliding_window", 4096) : 0;
  if (config.has_value("layer_types")) return read_layer_types(model, config, window);
  if (!slides) return;
  for (auto i = config.non_negative_integer("max_window_layers", 28); i < model.n_layers; ++i)
    model.layers[as_index(i)].window = window;
}

}  // namespace

// Llama: pre-norm RMSNorm, grouped-query attention, SwiGLU, RoPE on every layer.
void read_llama(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {});
  read_attention_bias(model, config, false);
  model.mlp_bias = config.flag("mlp_bias", false);
}

// The language model of Llama-3.2-Vision. Layers keep their checkpoint numbers;
// cross-attention layers are skipped because there is no image.
void read_mllama(ModelConfig& model, const ConfigReader& config) {
  constexpr std::int64_t kImageTokenRows = 8;  // embedding rows after those of the vocabulary
  read_llama_config(
      model, config,
      {.rope_theta = 500000.0, .norm_eps = 1e-5, .n_kv_heads = 8, .max_positions = 131072});
  model.embedding_rows = model.vocab_size + kImageTokenRows;
  const std::vector<std::int64_t> published = {3, 8, 13, 18, 23, 28, 33, 38};
  const auto cross = config.has_value("cross_attention_layers")
                         ? config.integers("cross_attention_layers")
                         : published;
  for (const auto layer : cross) {
    if (layer < 0 || layer >= model.n_layers)
      reject("{}: cross_attention_layers names layer {}, the model has layers 0 to {}",
             config.where(), layer, model.n_layers - 1);
    model.layers[as_index(layer)].cross_attention = true;
  }
}

// Granite: Llama with scale factors on embeddings, scores, residual updates and logits.
void read_granite(ModelConfig& model, const ConfigReader& config) {
  read_llama(model, config);
  model.embedding_scale = config.number("embedding_multiplier", 1.0, kScaleFactor);
  model.attention_scale = config.number("attention_multiplier", 1.0, kScaleFactor);
  model.residual_scale = config.number("residual_multiplier", 1.0, kScaleFactor);
  model.logit_scale = 1.0 / config.number("logits_scaling", 1.0, kScaleFactor);
}

// Phi-3 and Phi-4: Llama with q, k and v in one matrix, and gate and up in another.
void read_phi3(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.norm_eps = 1e-5, .max_positions = 4096});
  model.names.qkv = "self_attn.qkv_proj";
  model.names.gate_up = "mlp.gate_up_proj";
  read_uniform_window(model, config);
}

// GLM: interleaved RoPE on half of each head, bias on q, k and v, gate and up in one matrix.
void read_glm(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config,
                    {.norm_eps = 1.5625e-07,
                     .d_head = 128,
                     .n_kv_heads = 2,
                     .partial_rotary_factor = 0.5,
                     .max_positions = 131072});
  model.qkv_bias = config.flag("attention_bias", true);
  model.rope_interleaved = true;
  model.names.gate_up = "mlp.gate_up_proj";
}

// GLM-4-0414: GLM with additional norms on the outputs of attention and MLP.
void read_glm4(ModelConfig& model, const ConfigReader& config) {
  read_glm(model, config);
  model.names.post_attention_norm = "post_self_attn_layernorm";
  model.names.post_mlp_norm = "post_mlp_layernorm";
}

// Apertus: q/k norm as in Qwen3, and an ungated MLP with the learned activation xIELU.
void read_apertus(ModelConfig& model, const ConfigReader& config) {
  if (!config.has_value("rope_parameters") && !config.has_value("rope_scaling"))
    reject("{}: 'rope_parameters' is missing; an apertus model needs its RoPE parameters",
           config.where());
  read_llama_config(
      model, config,
      {.rope_theta = 12e6, .norm_eps = 1e-5, .activation = "xielu", .max_positions = 65536});
  model.qk_norm = true;
  read_attention_bias(model, config, false);
  model.names.input_norm = "attention_layernorm";
  model.names.mlp_norm = "feedforward_layernorm";
  model.names.gate = "";
}

// StarCoder2: LayerNorm and biases everywhere, an ungated MLP, optional sliding windows.
void read_starcoder2(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config,
                    {.norm_eps = 1e-5,
                     .norm_eps_key = "norm_epsilon",
                     .activation = "gelu_pytorch_tanh",
                     .tied = true,
                     .n_kv_heads = 2,
                     .max_positions = 4096});
  model.norm = NormKind::layer;
  model.norm_bias = true;
  model.qkv_bias = config.flag("use_bias", true);
  model.output_bias = model.mlp_bias = model.qkv_bias;
  model.names.gate = "";
  model.names.up = "mlp.c_fc";
  model.names.down = "mlp.c_proj";
  read_uniform_window(model, config);
}

// Mistral: Llama with a sliding window on every layer; a sliding_window of null switches it off.
void read_mistral(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.n_kv_heads = 8, .max_positions = 4096 * 32});
  const std::int64_t fallback = config.contains_key("sliding_window") ? 0 : 4096;
  for (auto& layer : model.layers)
    layer.window = config.positive_integer("sliding_window", fallback);
}

// Ministral: layer_types lists the layers that use a sliding window.
void read_ministral(ModelConfig& model, const ConfigReader& config) {
  read_mistral(model, config);
  if (config.has_value("layer_types")) read_layer_types(model, config, model.layers.front().window);
}

// Ministral 3: YaRN, and queries scaled by the logarithm of their position.
void read_ministral3(ModelConfig& model, const ConfigReader& config) {
  if (!config.has_value("rope_parameters") && !config.has_value("rope_scaling"))
    reject("{}: 'rope_parameters' is missing; a ministral3 model needs its YaRN parameters",
           config.where());
  read_llama_config(model, config,
                    {.norm_eps = 1e-5, .d_head = 128, .n_kv_heads = 8, .max_positions = 262144});
  read_uniform_window(model, config);
  const auto rope =
      config.section(config.has_value("rope_scaling") ? "rope_scaling" : "rope_parameters");
  if (rope.has_value("llama_4_scaling_beta"))
    model.query_scaling =
        QueryScaling{rope.number("llama_4_scaling_beta", {0.0, 1e3}), model.ropes[0].original_max};
}

// OLMo: Llama with a LayerNorm without weights; some models clip q, k and v.
void read_olmo(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {});
  model.norm = NormKind::layer;
  model.norm_eps = 1e-5;  // constant in the reference implementation, whatever config.json says
  model.norm_weight = false;
  read_attention_bias(model, config, false);
  if (config.has_value("clip_qkv")) model.qkv_clip = config.number("clip_qkv", {1e-6, 1e9});
}

// OLMo 2: OLMo with RMSNorm after attention and MLP, and q/k norms over all heads.
void read_olmo2(ModelConfig& model, const ConfigReader& config) {
  read_olmo2_without_rope(model, config);
  model.ropes = {read_llama_rope(model, config, {})};
}

// OLMo 3: every fourth layer has full attention and scaled RoPE, the others a sliding window.
void read_olmo3(ModelConfig& model, const ConfigReader& config) {
  read_olmo2_without_rope(model, config);
  read_periodic_windows(model, config, {});
  const auto theta = config.number("rope_theta", 500000.0, kRopeTheta);
  read_ropes_by_layer_kind(model, config, theta, theta);
}

// Seed-OSS: Llama with separate bias flags for q, k and v, the output projection and the MLP.
void read_seed_oss(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.d_head = 128, .n_kv_heads = 8, .max_positions = 524288});
  model.qkv_bias = config.flag("attention_bias", true);
  model.output_bias = config.flag("attention_out_bias", false);
  model.mlp_bias = config.flag("mlp_bias", false);
}

// ERNIE 4.5: Llama with interleaved RoPE; a single config key enables all biases.
void read_ernie4_5(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config,
                    {.rope_theta = 500000.0,
                     .norm_eps = 1e-5,
                     .tied = true,
                     .d_head = model.family == "ernie4_5" ? 128 : 0,
                     .n_kv_heads = 2,
                     .max_positions = 131072});
  model.rope_interleaved = true;
  model.qkv_bias = model.output_bias = model.mlp_bias = config.flag("use_bias", false);
}

// Hunyuan: q/k norm after RoPE. `alpha` multiplies theta of dynamic RoPE by alpha^(d / (d - 2)).
void read_hunyuan_v1_dense(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.norm_eps = 1e-5});
  read_attention_bias(model, config, false);
  model.rotated_qk_norm = true;
  model.names.q_norm = "self_attn.query_layernorm";
  model.names.k_norm = "self_attn.key_layernorm";
  auto& rope = model.ropes.front();
  if (rope.type != RopeType::dynamic) return;
  const auto parameters =
      config.section(config.has_value("rope_scaling") ? "rope_scaling" : "rope_parameters");
  const auto alpha = parameters.number("alpha", 0.0, {0.0, 1e6});
  if (alpha == 0.0) return;
  const auto d = static_cast<double>(rope.dim);
  rope.theta *= std::pow(alpha, d / (d - 2.0));
  rope.type = RopeType::standard;
}

// nanochat: norms without weights, also on the embeddings; RoPE with negative angles; an ungated
// MLP with squared ReLU; a soft cap of logits. The q/k norm follows RoPE in the reference; without
// weights it commutes with rotations and removes their attention factor.
void read_nanochat(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.activation = "relu2"});
  read_attention_bias(model, config, false);
  model.norm_weight = false;
  model.embedding_norm = true;
  model.qk_norm = true;
  model.ropes.front().reversed = true;
  model.ropes.front().attention_factor = 1.0;
  const bool capped = !config.contains_key("final_logit_softcapping");
  model.logit_softcap = config.number("final_logit_softcapping", capped ? 15.0 : 0.0, {0.0, 1e9});
  model.names.gate = "";
  model.names.up = "mlp.fc1";
  model.names.down = "mlp.fc2";
}

// Qwen2 and Qwen2.5: bias on q, k and v; the upper layers may use a sliding window.
void read_qwen2(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.max_positions = 32768});
  model.qkv_bias = true;
  read_upper_layer_windows(model, config);
}

// Qwen3: RMSNorm on every q and k head before RoPE; the upper layers may use a sliding window.
void read_qwen3(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.d_head = 128, .max_positions = 32768});
  model.qk_norm = true;
  read_attention_bias(model, config, false);
  read_upper_layer_windows(model, config);
}

// GPT-2: learned positions, LayerNorm with bias, matrices stored as (in, out), an ungated MLP.
void read_gpt2(ModelConfig& model, const ConfigReader& config) {
  read_gpt2_sizes(model, config);
  // Some GPT-2 models divide the attention scores of layer i by i + 1.
  const bool by_layer = config.flag("scale_attn_by_inverse_layer_idx", false);
  for (std::int64_t i = 0; i < model.n_layers; ++i)
    model.layers.push_back(
        {.rope = -1, .score_scale = by_layer ? 1.0 / static_cast<double>(i + 1) : 1.0});
  if (config.flag("add_cross_attention", false))
    reject("{}: add_cross_attention is not supported; only decoders alone are", config.where());
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
  read_llama_config_without_rope(model, config, defaults);
  model.ropes = {read_llama_rope(model, config, defaults)};
  if (!config.has_value("rope_scaling") && !config.has_value("rope_parameters")) {
    auto& rope = model.ropes.front();
    rope.type = RopeType::yarn;
    rope.factor = 32.0;
    rope.original_max = 4096;
    rope.truncate = false;
  }
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
