// OLMo: Llama with a LayerNorm without weights; some models clip q, k and v.
#include "engine/model/family.h"

namespace qkscope {
namespace {

// OLMo 2 without RoPE: norms after attention and MLP, and q/k norms over all heads.
void read_olmo2_body(ModelConfig& model, const ConfigReader& config) {
  read_llama_body(model, config, {.norm_eps = 1e-5});
  model.qk_norm = true;
  model.qk_norm_whole = true;
  read_attention_bias(model, config, false);
  model.names.input_norm = "";
  model.names.mlp_norm = "";
  model.names.post_attention_norm = "post_attention_layernorm";
  model.names.post_mlp_norm = "post_feedforward_layernorm";
}

}  // namespace

void read_olmo(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {});
  model.norm = NormKind::layer;
  model.norm_eps = 1e-5;  // a constant in the reference implementation; config.json has no say
  model.norm_weight = false;
  read_attention_bias(model, config, false);
  if (config.has("clip_qkv")) model.qkv_clip = config.number("clip_qkv", {1e-6, 1e9});
}

void read_olmo2(ModelConfig& model, const ConfigReader& config) {
  read_olmo2_body(model, config);
  model.ropes = {read_llama_rope(model, config, {})};
}

// OLMo 3: every fourth layer is full, the others slide; only full layers scale RoPE.
void read_olmo3(ModelConfig& model, const ConfigReader& config) {
  read_olmo2_body(model, config);
  read_periodic_windows(model, config, 4);
  const auto theta = config.number("rope_theta", 500000.0, kRopeTheta);
  read_ropes_by_kind(model, config, theta, theta);
}

}  // namespace qkscope
