// Gemma 3: scaled embeddings, norms that multiply by 1 + weight and stand before and after both
// halves of a layer, q/k norm, GELU, and two kinds of layers with a RoPE each: sliding and full.
#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "model/family.h"
#include "model/rope_reader.h"

namespace qkscope {
namespace {

constexpr int kFullRope = 0;
constexpr int kSlidingRope = 1;

// Every sixth layer is full, under any of the three spellings the pattern has had.
void read_layers(ModelConfig& model, const ConfigReader& config) {
  const auto window = config.count("sliding_window", 4096);
  const auto pattern =
      config.count("sliding_window_pattern", config.count("_sliding_window_pattern", 6));
  if (config.has("layer_types")) {
    read_layer_types(model, config, window);
  } else {
    for (std::int64_t i = 0; i < model.n_layers; ++i)
      model.layers[static_cast<std::size_t>(i)].window = (i + 1) % pattern == 0 ? 0 : window;
  }
  for (auto& layer : model.layers) layer.rope = layer.window > 0 ? kSlidingRope : kFullRope;
}

// rope_parameters holds one map per kind of layer; the older spelling has rope_theta and
// rope_scaling for full layers and rope_local_base_freq for sliding ones.
void read_ropes(ModelConfig& model, const ConfigReader& config) {
  RopeConfig base;
  base.dim = model.d_head;
  base.max_positions = model.max_positions;
  base.original_max = model.max_positions;
  RopeConfig full = base;
  full.theta = config.number("rope_theta", 1e6, kRopeTheta);
  RopeConfig sliding = base;
  sliding.theta = config.number("rope_local_base_freq", 1e4, kRopeTheta);
  if (config.has("rope_parameters")) {
    const auto parameters = config.section("rope_parameters");
    if (parameters.has("full_attention"))
      full = read_rope(full, parameters.section("full_attention"));
    if (parameters.has("sliding_attention"))
      sliding = read_rope(sliding, parameters.section("sliding_attention"));
  }
  if (config.has("rope_scaling")) full = read_rope(full, config.section("rope_scaling"));
  model.ropes = {full, sliding};
}

}  // namespace

void read_gemma3(ModelConfig& model, const ConfigReader& config) {
  // Spelled as in Llama, but with a default for everything: a text_config may leave most of it out.
  model.n_layers = read_layer_count(config, 26);
  model.d_model = config.count("hidden_size", 2304);
  model.n_heads = config.count("num_attention_heads", 8);
  model.n_kv_heads = config.count("num_key_value_heads", 4);
  model.d_head = config.count("head_dim", 256);
  model.d_mlp = config.count("intermediate_size", 9216);
  model.vocab_size = config.count("vocab_size", 262208);
  model.embedding_rows = model.vocab_size;
  model.max_positions = config.count("max_position_embeddings", 131072);
  model.norm_eps = config.number("rms_norm_eps", 1e-6, kNormEps);
  model.activation = read_activation(config, "gelu_pytorch_tanh");
  model.tied = config.flag("tie_word_embeddings", true);
  model.layers.assign(static_cast<std::size_t>(model.n_layers), LayerConfig{});
  model.norm_adds_one = true;
  model.qk_norm = true;
  model.qkv_bias = config.flag("attention_bias", false);
  model.output_bias = model.qkv_bias;
  model.embedding_scale = std::sqrt(static_cast<double>(model.d_model));
  model.attention_scale =
      1.0 / std::sqrt(config.number("query_pre_attn_scalar", 256.0, {1e-6, 1e9}));
  model.logit_softcap = config.number("final_logit_softcapping", 0.0, {0.0, 1e9});
  model.names = {.mlp_norm = "pre_feedforward_layernorm",
                 .post_attention_norm = "post_attention_layernorm",
                 .post_mlp_norm = "post_feedforward_layernorm"};
  if (config.has("attn_logit_softcapping"))
    log::warn(
        "{}: attn_logit_softcapping is not applied, as transformers does not apply it to gemma3",
        config.where());
  if (config.flag("use_bidirectional_attention", false))
    bad_input("{}: use_bidirectional_attention is not supported; only causal models are",
              config.where());
  read_layers(model, config);
  read_ropes(model, config);
}

}  // namespace qkscope
