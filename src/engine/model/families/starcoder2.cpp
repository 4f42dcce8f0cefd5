// StarCoder2: LayerNorm and biases everywhere, an ungated MLP, optional sliding windows.
#include "engine/model/family.h"

namespace qkscope {

void read_starcoder2(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config,
                  {.norm_eps = 1e-5,
                   .norm_eps_key = "norm_epsilon",
                   .activation = "gelu_pytorch_tanh",
                   .tied = true,
                   .max_positions = 4096});
  model.norm = NormKind::layer;
  model.norm_bias = true;
  model.qkv_bias = config.flag("use_bias", true);
  model.output_bias = model.mlp_bias = model.qkv_bias;
  model.names.gate = "";
  model.names.up = "mlp.c_fc";
  model.names.down = "mlp.c_proj";
  read_window_of_all(model, config);
}

}  // namespace qkscope
