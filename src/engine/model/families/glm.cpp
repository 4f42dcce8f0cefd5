// GLM: interleaved RoPE on half of each head, bias on q, k and v, gate and up in one matrix.
#include "engine/model/family.h"

namespace qkscope {

void read_glm(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config,
                  {.norm_eps = 1.5625e-07,
                   .d_head = 128,
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

}  // namespace qkscope
