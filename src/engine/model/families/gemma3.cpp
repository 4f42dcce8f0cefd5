// Gemma 3: Gemma 2 with q/k norm and without caps, and two kinds of layers with a RoPE each: five
// sliding ones, then a full one.
#include "base/core/log.h"
#include "engine/model/family.h"
#include "engine/model/rope_reader.h"

namespace qkscope {
namespace {

// Every sixth layer is full, under any of the three spellings the pattern has had.
void read_layers(ModelConfig& model, const ConfigReader& config) {
  const auto window = config.count("sliding_window", 4096);
  const auto pattern =
      config.count("sliding_window_pattern", config.count("_sliding_window_pattern", 6));
  if (config.has("layer_types")) return read_layer_types(model, config, window);
  for (std::int64_t i = 0; i < model.n_layers; ++i)
    model.layers[static_cast<std::size_t>(i)].window = (i + 1) % pattern == 0 ? 0 : window;
}

}  // namespace

void read_gemma3(ModelConfig& model, const ConfigReader& config) {
  read_gemma_base(model, config, {.vocab_size = 262208, .max_positions = 131072});
  model.qk_norm = true;
  model.logit_softcap = config.number("final_logit_softcapping", 0.0, {0.0, 1e9});
  if (config.has("attn_logit_softcapping"))
    log::warn(
        "{}: attn_logit_softcapping is not applied, as transformers does not apply it to gemma3",
        config.where());
  read_layers(model, config);
  read_ropes_by_kind(model, config, config.number("rope_theta", 1e6, kRopeTheta),
                     config.number("rope_local_base_freq", 1e4, kRopeTheta));
}

}  // namespace qkscope
