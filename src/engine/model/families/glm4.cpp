// GLM-4-0414: GLM with one more norm after attention and one after the MLP.
#include "engine/model/family.h"

namespace qkscope {

void read_glm4(ModelConfig& model, const ConfigReader& config) {
  read_glm(model, config);
  model.names.post_attention_norm = "post_self_attn_layernorm";
  model.names.post_mlp_norm = "post_mlp_layernorm";
}

}  // namespace qkscope
