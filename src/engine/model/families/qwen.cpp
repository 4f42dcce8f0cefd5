// Qwen2, Qwen3 and Qwen3-MoE.
#include <algorithm>

#include "engine/model/model_config.h"

namespace qkscope {
namespace {

void read_sparse_layers(ModelConfig& model, const ConfigReader& config) {
  const auto step = config.positive_integer("decoder_sparse_step", 1);
  const auto dense = config.has_value("mlp_only_layers") ? config.integers("mlp_only_layers")
                                                         : std::vector<std::int64_t>{};
  for (std::int64_t i = 0; i < model.n_layers; ++i)
    model.layers[static_cast<std::size_t>(i)].experts =
        (i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end();
}

}  // namespace

// Qwen2 and Qwen2.5: bias on q, k and v; the upper layers may use a sliding window.
void read_qwen2(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.max_positions = 32768});
  model.qkv_bias = true;
  read_windows_of_upper_layers(model, config);
}

// Qwen3: RMSNorm on every q and k head before RoPE; the upper layers may use a sliding window.
void read_qwen3(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.d_head = 128, .max_positions = 32768});
  model.qk_norm = true;
  read_attention_bias(model, config, false);
  read_windows_of_upper_layers(model, config);
}

// Qwen3-MoE: Qwen3 with a mixture of experts in most layers.
void read_qwen3_moe(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config, {.max_positions = 32768});
  model.qk_norm = true;
  read_attention_bias(model, config, false);
  if (config.flag("use_sliding_window", false))
    for (auto& layer : model.layers) layer.window = config.positive_integer("sliding_window", 4096);
  read_experts(
      model, config,
      {.count_key = config.has_value("num_local_experts") ? "num_local_experts" : "num_experts",
       .count = 128,
       .per_token = 8,
       .d_mlp = config.positive_integer("moe_intermediate_size", 768)});
  model.experts.normalized = config.flag("norm_topk_prob", false);
  read_sparse_layers(model, config);
  model.names.experts = {{.router = "mlp.gate",
                          .gate = "mlp.experts.{}.gate_proj",
                          .up = "mlp.experts.{}.up_proj",
                          .down = "mlp.experts.{}.down_proj"},
                         stacked_expert_names()};
}

}  // namespace qkscope
