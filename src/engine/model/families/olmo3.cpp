// OLMo 3: OLMo 2 with three sliding layers before each full one; RoPE is scaled on full layers
// only.
#include "engine/model/family.h"
#include "engine/model/rope_reader.h"

namespace qkscope {

void read_olmo3(ModelConfig& model, const ConfigReader& config) {
  read_olmo2_body(model, config);
  const auto window = config.count("sliding_window", 4096);
  if (config.has("layer_types"))
    read_layer_types(model, config, window);
  else
    for (std::size_t i = 0; i < model.layers.size(); ++i)
      model.layers[i].window = (i + 1) % 4 == 0 ? 0 : window;
  const auto theta = config.number("rope_theta", 500000.0, kRopeTheta);
  read_ropes_by_kind(model, config, theta, theta);
}

}  // namespace qkscope
