// Qwen2 and Qwen3.
#include "engine/model/model_config.h"

namespace qkscope {

// Qwen2 and Qwen2.5: bias on q, k and v; the upper layers may use a sliding window.
void read_qwen2(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.max_positions = 32768});
  model.qkv_bias = true;
  read_windows_of_upper_layers(model, config);
}

// Qwen3: RMSNorm on every q and k head before RoPE; the upper layers may use a sliding window.
void read_qwen3(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.d_head = 128, .max_positions = 32768});
  model.qk_norm = true;
  read_attention_bias(model, config, false);
  read_windows_of_upper_layers(model, config);
}

}  // namespace qkscope
