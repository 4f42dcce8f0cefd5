// Mistral: Llama with a sliding window on every layer. Ministral and Mixtral build on it.
#include "base/core/error.h"
#include "engine/model/family.h"

namespace qkscope {

// A sliding_window of null switches the window off.
void read_mistral(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.max_positions = 4096 * 32});
  const std::int64_t fallback = config.contains("sliding_window") ? 0 : 4096;
  for (auto& layer : model.layers) layer.window = config.count("sliding_window", fallback);
}

// Ministral: layer_types says which layers slide.
void read_ministral(ModelConfig& model, const ConfigReader& config) {
  read_mistral(model, config);
  if (config.has("layer_types")) read_layer_types(model, config, model.layers.front().window);
}

// Ministral 3: YaRN, and queries scaled by the logarithm of their position.
void read_ministral3(ModelConfig& model, const ConfigReader& config) {
  if (!config.has("rope_parameters") && !config.has("rope_scaling"))
    bad_input("{}: 'rope_parameters' is missing; a ministral3 model needs its YaRN parameters",
              config.where());
  read_llama_base(model, config, {.norm_eps = 1e-5, .d_head = 128, .max_positions = 262144});
  read_shared_window(model, config);
  const auto rope = config.section(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  if (rope.has("llama_4_scaling_beta"))
    model.query_scaling =
        QueryScaling{rope.number("llama_4_scaling_beta", {0.0, 1e3}), model.ropes[0].original_max};
}

// Mixtral: a mixture of experts in place of every MLP.
void read_mixtral(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.rope_theta = 1e6, .norm_eps = 1e-5, .max_positions = 4096 * 32});
  read_shared_window(model, config);
  read_experts(model, config,
               {.count_key = config.has("num_experts") ? "num_experts" : "num_local_experts",
                .count = 8,
                .per_token = 2,
                .d_mlp = model.d_mlp});
  model.experts.normalized = true;
  for (auto& layer : model.layers) layer.experts = true;
  model.names.experts = {{.router = "block_sparse_moe.gate",
                          .gate = "block_sparse_moe.experts.{}.w1",
                          .up = "block_sparse_moe.experts.{}.w3",
                          .down = "block_sparse_moe.experts.{}.w2"},
                         experts_in_one_tensor()};
}

}  // namespace qkscope
