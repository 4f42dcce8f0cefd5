// Families with a mixture of experts in place of some or all MLPs.
#include <algorithm>

#include <fmt/format.h>

#include "base/core/numbers.h"
#include "engine/model/model_config.h"

namespace qkscope {

ExpertNames block_sparse_names() {
  return {.router = "block_sparse_moe.gate",
          .gate = "block_sparse_moe.experts.{}.w1",
          .up = "block_sparse_moe.experts.{}.w3",
          .down = "block_sparse_moe.experts.{}.w2"};
}

void read_expert_groups(ModelConfig& model, const ConfigReader& config, std::int64_t groups,
                        std::int64_t chosen) {
  auto& experts = model.experts;
  experts.groups = config.positive_integer("n_group", groups);
  experts.chosen_groups = config.positive_integer("topk_group", chosen);
  if (experts.groups > kMostExpertGroups || experts.count % experts.groups != 0 ||
      (experts.groups > 1 && experts.count / experts.groups < 2))
    config.fail("n_group", fmt::format("at most {} equal groups of 2 or more of the {} experts",
                                       kMostExpertGroups, experts.count));
  const auto eligible = experts.chosen_groups * (experts.count / experts.groups);
  if (experts.chosen_groups > experts.groups || eligible < experts.per_token)
    config.fail("topk_group", "groups with at least num_experts_per_tok experts");
}

void read_first_dense_layers(ModelConfig& model, const ConfigReader& config, std::int64_t dense,
                             const char* key) {
  dense = config.non_negative_integer(key, dense);
  for (std::int64_t i = 0; i < std::min(dense, model.n_layers); ++i)
    model.layers[as_index(i)].experts = false;
}

void read_sparse_layers(ModelConfig& model, const ConfigReader& config) {
  const auto step = config.positive_integer("decoder_sparse_step", 1);
  const auto dense = config.has_value("mlp_only_layers") ? config.integers("mlp_only_layers")
                                                         : std::vector<std::int64_t>{};
  for (std::int64_t i = 0; i < model.n_layers; ++i)
    model.layers[static_cast<std::size_t>(i)].experts =
        (i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end();
}

// Mixtral: a mixture of experts in place of every MLP.
void read_mixtral(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(
      model, config,
      {.rope_theta = 1e6, .norm_eps = 1e-5, .n_kv_heads = 8, .max_positions = 4096 * 32});
  read_window_of_all_layers(model, config);
  read_experts(model, config, {.count = 8, .per_token = 2});
  model.experts.normalized = true;
  model.names.experts.front() = block_sparse_names();
}

// Qwen3-MoE: Qwen3 with a mixture of experts in most layers.
void read_qwen3_moe(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.n_kv_heads = 4, .max_positions = 32768});
  model.qk_norm = true;
  read_attention_bias(model, config, false);
  if (config.flag("use_sliding_window", false))
    for (auto& layer : model.layers) layer.window = config.positive_integer("sliding_window", 4096);
  read_experts(model, config, {.count = 128, .per_token = 8, .d_mlp = 768});
  model.experts.normalized = config.flag("norm_topk_prob", false);
  read_sparse_layers(model, config);
}

// OLMoE: q/k norms over all heads, experts whose weights are not renormalised.
void read_olmoe(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.norm_eps = 1e-5, .max_positions = 4096});
  if (config.has_value("clip_qkv"))
    config.fail("clip_qkv", "null: clipping of normalised q and k is not supported");
  model.qk_norm = model.qk_norm_whole = true;
  read_attention_bias(model, config, false);
  read_experts(model, config, {.count = 64, .per_token = 8});
  model.experts.normalized = config.flag("norm_topk_prob", false);
}

// GLM-4.5: dense layers first, then experts with a biased sigmoid router and a shared expert;
// partial RoPE. The multi-token prediction (MTP) layers of checkpoints are not read.
void read_glm4_moe(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(
      model, config,
      {.norm_eps = 1e-5, .n_kv_heads = 8, .partial_rotary_factor = 0.5, .max_positions = 131072});
  model.qk_norm = config.flag("use_qk_norm", false);
  model.qkv_bias = config.flag("attention_bias", false);
  read_experts(model, config,
               {.count = 128, .per_token = 8, .d_mlp = 1408, .count_key = "n_routed_experts"});
  read_biased_router(model, config, "routed_scaling_factor", "mlp.gate.e_score_correction_bias");
  model.experts.normalized = config.flag("norm_topk_prob", true);
  read_expert_groups(model, config);
  read_shared_experts(model, config, "n_shared_experts", 1);
  read_first_dense_layers(model, config, 1);
  model.names.unused = {fmt::format("layers.{}.", model.n_layers)};
}

// ERNIE 4.5 MoE: ERNIE with experts in some layers, chosen by softmax plus bias, and shared
// experts.
void read_ernie4_5_moe(ModelConfig& model, const ConfigReader& config) {
  read_ernie4_5(model, config);
  if (!config.contains_key("num_key_value_heads")) model.n_kv_heads = 4;
  if (model.mlp_bias) config.fail("use_bias", "false: biases of ernie4_5_moe are not supported");
  read_experts(model, config,
               {.count = 64,
                .per_token = 6,
                .d_mlp = 1536,
                .count_key = "moe_num_experts",
                .per_token_key = "moe_k"});
  model.experts.normalized = true;
  for (auto& names : model.names.experts) {
    names.selection_bias = "mlp.moe_statics.e_score_correction_bias";
    names.bias_has_rows = true;
  }
  model.names.experts[1].bias_has_rows = false;  // [1]: GGUF
  model.names.experts.back().selection_bias = "mlp.gate.moe_statics.e_score_correction_bias";
  read_shared_experts(model, config, "moe_num_shared_experts", 2);
  const auto first = config.non_negative_integer("moe_layer_start_index", 1);
  const auto last = config.number("moe_layer_end_index", -1.0, {-1.0, 1e6});
  const auto step = config.positive_integer("moe_layer_interval", 1);
  for (std::int64_t i = 0; i < model.n_layers; ++i)
    model.layers[as_index(i)].experts =
        (i + 1) % step == 0 && i >= first && (last < 0.0 || static_cast<double>(i) <= last);
  model.names.unused = {"mtp_"};
}

// MiniMax-M2: experts in every layer with a biased sigmoid router, q/k norms over all heads, RoPE
// on rotary_dim dimensions.
void read_minimax_m2(ModelConfig& model, const ConfigReader& config) {
  const auto d_head = config.positive_integer("head_dim", 128);
  const auto rotated = config.positive_integer("rotary_dim", d_head);
  read_llama_config(
      model, config,
      {.rope_theta = 5e6,
       .d_head = d_head,
       .n_kv_heads = 8,
       .partial_rotary_factor = static_cast<double>(rotated) / static_cast<double>(d_head),
       .max_positions = 196608});
  model.qk_norm = model.qk_norm_whole = true;
  read_experts(model, config, {.count = 256, .per_token = 8});
  model.names.experts.front() = block_sparse_names();
  read_biased_router(model, config, "", "mlp.e_score_correction_bias");
  model.names.experts.front().selection_bias = "block_sparse_moe.e_score_correction_bias";
}

}  // namespace qkscope
