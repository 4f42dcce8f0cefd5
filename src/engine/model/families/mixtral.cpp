// Mixtral: Mistral with a mixture of experts in place of every MLP.
#include "engine/model/family.h"

namespace qkscope {

void read_mixtral(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.rope_theta = 1e6, .norm_eps = 1e-5, .max_positions = 4096 * 32});
  read_window_of_all(model, config);
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
