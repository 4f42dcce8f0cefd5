// DeepSeek-V2 and V3: multi-head latent attention (MLA) and experts after the first dense layers.
#include <cmath>

#include <fmt/format.h>

#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Rejects values other than `supported` of a config key that transformers ignores.
void require(const ConfigReader& config, const char* key, const std::string& supported) {
  if (config.string(key, supported) != supported)
    config.fail(key, fmt::format("\"{}\": other routers are not supported", supported));
}

// YaRN also multiplies the scores by mscale², because a longer context has more keys to tell apart.
double score_factor(const RopeConfig& rope) {
  if (rope.type == RopeType::standard || rope.factor <= 1.0) return 1.0;
  const double mscale = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1.0;
  return mscale * mscale;
}

// Reads sizes, tensor names, and RoPE, which applies to the last qk_rope_head_dim dimensions of a
// head. A "head_dim" in the file is the number of rotated dimensions.
void read_latent_attention(ModelConfig& model, const ConfigReader& config,
                           std::int64_t max_positions) {
  const auto rotated = config.positive_integer("qk_rope_head_dim", 64);
  const auto own = config.positive_integer("qk_nope_head_dim", 128);
  const LlamaDefaults defaults{.d_head = rotated, .max_positions = max_positions};
  read_llama_without_rope(model, config, defaults);
  if (model.n_kv_heads != model.n_heads)
    config.fail("num_key_value_heads", "the number of query heads");
  model.d_head = rotated;
  auto rope = read_llama_rope(model, config, defaults);
  if (rope.dim != rotated) config.fail("partial_rotary_factor", "1: see qk_rope_head_dim");
  rope.begin = own;
  model.d_head = own + rotated;
  model.attention_scale = score_factor(rope) / std::sqrt(static_cast<double>(model.d_head));
  model.ropes = {rope};
  const bool plain = config.contains_key("q_lora_rank") && !config.has_value("q_lora_rank");
  model.latent = {.kv_rank = config.positive_integer("kv_lora_rank", 512),
                  .q_rank = plain ? 0 : config.positive_integer("q_lora_rank", 1536),
                  .d_value = config.positive_integer("v_head_dim", 128)};
  model.names.q = plain ? "self_attn.q_proj" : "self_attn.q_b_proj";
  model.names.k = "self_attn.kv_b_proj";
  read_attention_bias(model, config, false);
}

}  // namespace

// DeepSeek-V3: a biased sigmoid router limited to groups of experts. The multi-token prediction
// (MTP) layers of checkpoints are not read.
void read_deepseek_v3(ModelConfig& model, const ConfigReader& config) {
  read_latent_attention(model, config, 4096);
  model.rope_interleaved = model.rope_sorts_pairs = config.flag("rope_interleave", true);
  read_experts(model, config,
               {.count = 256, .per_token = 8, .d_mlp = 2048, .count_key = "n_routed_experts"});
  require(config, "scoring_func", "sigmoid");
  require(config, "topk_method", "noaux_tc");
  read_biased_router(model, config, "routed_scaling_factor", "mlp.gate.e_score_correction_bias");
  model.experts.weight_scale = config.number("routed_scaling_factor", 2.5, kScaleFactor);
  model.experts.normalized = config.flag("norm_topk_prob", true);
  read_expert_groups(model, config, 8, 4);
  read_shared_experts(model, config, "n_shared_experts", 1);
  read_first_dense_layers(model, config, 3);
  const auto predictors = config.non_negative_integer(
      "num_nextn_predict_layers", config.non_negative_integer("num_mtp_layers", 1));
  for (std::int64_t i = 0; i < std::min<std::int64_t>(predictors, 16); ++i)
    model.names.unused.push_back(fmt::format("layers.{}.", model.n_layers + i));
}

// DeepSeek-V2: softmax scores without a selection bias; a group of experts is ranked by the score
// of its best expert.
void read_deepseek_v2(ModelConfig& model, const ConfigReader& config) {
  read_latent_attention(model, config, 2048);
  model.rope_interleaved = true;
  if (config.flag("mlp_bias", false))
    config.fail("mlp_bias", "false: biases of deepseek_v2 are not supported");
  read_experts(model, config,
               {.count = 64, .per_token = 0, .d_mlp = 1407, .count_key = "n_routed_experts"});
  if (model.experts.per_token == 0) config.fail("num_experts_per_tok", "a positive integer");
  require(config, "scoring_func", "softmax");
  if (config.flag("norm_topk_prob", false))
    config.fail("norm_topk_prob", "false: transformers does not normalise weights of deepseek_v2");
  model.experts.weight_scale = config.number("routed_scaling_factor", 1.0, kScaleFactor);
  const auto method = config.string("topk_method", "greedy");
  if (method != "greedy" && method != "group_limited_greedy")
    config.fail("topk_method", "\"greedy\" or \"group_limited_greedy\"");
  if (method == "group_limited_greedy") read_expert_groups(model, config);
  model.experts.group_maximum = true;
  read_shared_experts(model, config, "n_shared_experts", 2);
  read_first_dense_layers(model, config, 0);
}

}  // namespace qkscope
