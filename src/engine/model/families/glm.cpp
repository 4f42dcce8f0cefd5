// GLM: RoPE on half of the head in interleaved pairs, bias on q, k and v, one matrix for gate and
// up.
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

}  // namespace qkscope
