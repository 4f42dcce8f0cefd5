// Granite: Llama with scale factors on embeddings, scores, residual updates and logits.
#include "engine/model/family.h"

namespace qkscope {

void read_granite(ModelConfig& model, const ConfigReader& config) {
  constexpr ConfigReader::Range kFactor{1e-6, 1e6};
  read_llama_base(model, config, {});
  read_attention_bias(model, config, false);
  model.mlp_bias = config.flag("mlp_bias", false);
  model.embedding_scale = config.number("embedding_multiplier", 1.0, kFactor);
  model.attention_scale = config.number("attention_multiplier", 1.0, kFactor);
  model.residual_scale = config.number("residual_multiplier", 1.0, kFactor);
  model.logit_scale = 1.0 / config.number("logits_scaling", 1.0, kFactor);
}

}  // namespace qkscope
