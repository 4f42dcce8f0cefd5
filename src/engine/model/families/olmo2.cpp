// OLMo 2: norms stand after attention and MLP and not before, and q and k are normalised over all
// heads together.
#include "engine/model/family.h"

namespace qkscope {

void read_olmo2_body(ModelConfig& model, const ConfigReader& config) {
  read_llama_body(model, config, {.norm_eps = 1e-5});
  model.qk_norm = true;
  model.qk_norm_whole = true;
  model.qkv_bias = config.flag("attention_bias", false);
  model.output_bias = model.qkv_bias;
  model.names.input_norm = "";
  model.names.mlp_norm = "";
  model.names.post_attention_norm = "post_attention_layernorm";
  model.names.post_mlp_norm = "post_feedforward_layernorm";
}

void read_olmo2(ModelConfig& model, const ConfigReader& config) {
  read_olmo2_body(model, config);
  model.ropes = {read_llama_rope(model, config, {})};
}

}  // namespace qkscope
