// OLMo: Llama with LayerNorm that has no weights, and q, k and v clipped in some models.
#include "engine/model/family.h"

namespace qkscope {

void read_olmo(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {});
  model.norm = NormKind::layer;
  model.norm_eps = 1e-5;  // written into the model's code, whatever config.json says
  model.norm_weight = false;
  model.qkv_bias = config.flag("attention_bias", false);
  model.output_bias = model.qkv_bias;
  if (config.has("clip_qkv")) model.qkv_clip = config.number("clip_qkv", {1e-6, 1e9});
}

}  // namespace qkscope
