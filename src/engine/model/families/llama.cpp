// Llama: pre-norm RMSNorm, grouped query heads, SwiGLU, RoPE on every layer.
#include "engine/model/family.h"

namespace qkscope {

void read_llama(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {});
  model.qkv_bias = config.flag("attention_bias", false);
  model.output_bias = model.qkv_bias;
  model.mlp_bias = config.flag("mlp_bias", false);
}

}  // namespace qkscope
