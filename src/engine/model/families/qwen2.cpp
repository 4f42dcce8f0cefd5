// Qwen2 and Qwen2.5: bias on q, k and v; the upper layers may have a sliding window.
#include "engine/model/family.h"

namespace qkscope {

void read_qwen2(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.max_positions = 32768});
  model.qkv_bias = true;
  read_upper_windows(model, config);
}

}  // namespace qkscope
