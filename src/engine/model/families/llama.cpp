// Llama: pre-norm RMSNorm, grouped-query attention, SwiGLU, RoPE on every layer. Also the language
// model of Llama-3.2-Vision, whose cross-attention layers are skipped because there is no image.
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "engine/model/family.h"

namespace qkscope {

void read_llama(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {});
  read_attention_bias(model, config, false);
  model.mlp_bias = config.flag("mlp_bias", false);
}

// Layers keep the numbers of the checkpoint.
void read_mllama(ModelConfig& model, const ConfigReader& config) {
  constexpr std::int64_t kImageTokenRows =
      8;  // embedding rows of image tokens after the vocabulary
  read_llama_base(model, config,
                  {.rope_theta = 500000.0, .norm_eps = 1e-5, .max_positions = 131072});
  model.embedding_rows = model.vocab_size + kImageTokenRows;
  const std::vector<std::int64_t> published = {3, 8, 13, 18, 23, 28, 33, 38};
  const auto cross =
      config.has("cross_attention_layers") ? config.integers("cross_attention_layers") : published;
  for (const auto layer : cross) {
    if (layer < 0 || layer >= model.n_layers)
      bad_input("{}: cross_attention_layers names layer {}, the model has layers 0 to {}",
                config.where(), layer, model.n_layers - 1);
    model.layers[as_index(layer)].cross_attention = true;
  }
}

}  // namespace qkscope
