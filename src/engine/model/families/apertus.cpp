// Apertus: q/k norm as in Qwen3, and an ungated MLP with the learned activation xIELU.
#include "base/core/error.h"
#include "engine/model/family.h"

namespace qkscope {

void read_apertus(ModelConfig& model, const ConfigReader& config) {
  if (!config.has("rope_parameters") && !config.has("rope_scaling"))
    bad_input("{}: 'rope_parameters' is missing; an apertus model needs its RoPE parameters",
              config.where());
  read_llama_base(
      model, config,
      {.rope_theta = 12e6, .norm_eps = 1e-5, .activation = "xielu", .max_positions = 65536});
  model.qk_norm = true;
  read_attention_bias(model, config, false);
  model.names.input_norm = "attention_layernorm";
  model.names.mlp_norm = "feedforward_layernorm";
  model.names.gate = "";
}

}  // namespace qkscope
