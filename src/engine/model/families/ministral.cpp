// Ministral: Mistral whose layers say one by one whether they slide.
#include "engine/model/family.h"

namespace qkscope {

void read_ministral(ModelConfig& model, const ConfigReader& config) {
  read_mistral(model, config);
  if (config.has("layer_types")) read_layer_types(model, config, model.layers.front().window);
}

}  // namespace qkscope
