// The language model of Llama-3.2-Vision: Llama with cross-attention layers between, which are
// skipped when there is no image. Layers keep the checkpoint's numbering.
#include "base/core/error.h"
#include "engine/model/family.h"

namespace qkscope {
namespace {
constexpr std::int64_t kImageTokenRows = 8;  // embeddings of the image token beyond the vocabulary
}

void read_mllama(ModelConfig& model, const ConfigReader& config) {
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
    model.layers[static_cast<std::size_t>(layer)].cross_attention = true;
  }
}

}  // namespace qkscope
