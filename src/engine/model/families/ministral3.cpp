// Ministral 3: Mistral with YaRN and a query that grows with the logarithm of its position.
#include "base/core/error.h"
#include "engine/model/family.h"

namespace qkscope {

void read_ministral3(ModelConfig& model, const ConfigReader& config) {
  if (!config.has("rope_parameters") && !config.has("rope_scaling"))
    bad_input("{}: 'rope_parameters' is missing; a ministral3 model needs its YaRN parameters",
              config.where());
  read_llama_base(model, config, {.norm_eps = 1e-5, .d_head = 128, .max_positions = 262144});
  read_window_of_all(model, config);
  const auto rope = config.section(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  if (rope.has("llama_4_scaling_beta"))
    model.query_scaling =
        QueryScaling{rope.number("llama_4_scaling_beta", {0.0, 1e3}), model.ropes[0].original_max};
}

}  // namespace qkscope
