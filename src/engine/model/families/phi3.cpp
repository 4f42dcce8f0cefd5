// Phi-3 and Phi-4: Llama with q, k and v in one matrix, and gate and up in another.
#include "engine/model/family.h"

namespace qkscope {

void read_phi3(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.norm_eps = 1e-5, .max_positions = 4096});
  model.names.qkv = "self_attn.qkv_proj";
  model.names.gate_up = "mlp.gate_up_proj";
  read_window_of_all(model, config);
}

}  // namespace qkscope
