// SmolLM3: Llama without RoPE on some layers (NoPE); embeddings are tied by default.
#include "base/core/error.h"
#include "engine/model/family.h"

namespace qkscope {
namespace {

// Despite the name, no_rope_layers is 1 for a layer with RoPE and 0 for a NoPE layer.
void read_nope_layers(ModelConfig& model, const ConfigReader& config) {
  if (!config.has("no_rope_layers")) {
    const auto interval = config.count("no_rope_layer_interval", 4);
    for (std::int64_t i = 0; i < model.n_layers; ++i)
      if ((i + 1) % interval == 0) model.layers[static_cast<std::size_t>(i)].rope = -1;
    return;
  }
  const auto uses_rope = config.integers("no_rope_layers");
  if (uses_rope.size() < model.layers.size())
    bad_input("{}: no_rope_layers has {} entries, expected {} (one per layer)", config.where(),
              uses_rope.size(), model.layers.size());
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    if (uses_rope[i] == 0) model.layers[i].rope = -1;
}

// Without layer_types only NoPE layers get the sliding window, if use_sliding_window is set.
void read_windows(ModelConfig& model, const ConfigReader& config) {
  const bool slides = config.flag("use_sliding_window", false) && config.has("sliding_window");
  const std::int64_t window = config.has("sliding_window") ? config.count("sliding_window") : 0;
  if (config.has("layer_types")) return read_layer_types(model, config, window);
  for (auto& layer : model.layers)
    if (slides && layer.rope < 0) layer.window = window;
}

}  // namespace

void read_smollm3(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.rope_theta = 2e6, .tied = true, .max_positions = 32768});
  read_attention_bias(model, config, false);
  model.mlp_bias = config.flag("mlp_bias", false);
  read_nope_layers(model, config);
  read_windows(model, config);
}

}  // namespace qkscope
