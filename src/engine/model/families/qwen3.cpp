// Qwen3: RMSNorm on every q and k head before RoPE; the upper layers may slide.
#include "engine/model/family.h"

namespace qkscope {

void read_qwen3(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.d_head = 128, .max_positions = 32768});
  model.qk_norm = true;
  model.qkv_bias = config.flag("attention_bias", false);
  model.output_bias = model.qkv_bias;
  read_upper_windows(model, config);
}

}  // namespace qkscope
