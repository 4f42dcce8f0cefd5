// Phi-3 and Phi-4: Llama with one matrix for q, k and v and one for gate and up.
#include "engine/model/family.h"

namespace qkscope {

void read_phi3(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.norm_eps = 1e-5, .max_positions = 4096});
  model.names.qkv = "self_attn.qkv_proj";
  model.names.gate_up = "mlp.gate_up_proj";
  read_window_of_all(model, config);
}

}  // namespace qkscope
