// Mistral: Llama whose every layer slides, unless sliding_window is null.
#include "engine/model/family.h"

namespace qkscope {

void read_mistral(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.max_positions = 4096 * 32});
  const std::int64_t unsaid = config.mentions("sliding_window") ? 0 : 4096;
  for (auto& layer : model.layers) layer.window = config.count("sliding_window", unsaid);
}

}  // namespace qkscope
