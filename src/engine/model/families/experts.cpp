// Families with experts in place of MLPs, some of them with multi-head latent attention (MLA).
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/io/json.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Rejects values other than `supported` for a config key that transformers ignores.
void require_config_value(const ConfigReader& config, const char* key,
                          const std::string& supported) {
  if (config.string(key, supported) != supported)
    config.fail(key, fmt::format("\"{}\": other routers are not supported", supported));
}

// YaRN also multiplies the scores by mscale², because a longer context has more keys to tell apart.
double yarn_score_factor(const RopeConfig& rope) {
  if (rope.type == RopeType::standard || rope.factor <= 1.0) return 1.0;
  const double mscale = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1.0;
  return mscale * mscale;
}

// Reads sizes, tensor names and RoPE of latent attention (MLA). RoPE, if any, rotates the last
// qk_rope_head_dim dimensions of a head; head_dim is ignored. `q_rank`: default of q_lora_rank.
void read_latent_attention(ModelConfig& model, const ConfigReader& config, LlamaDefaults defaults,
                           std::int64_t q_rank, bool has_rope = true) {
  const auto shared = config.positive_integer("qk_rope_head_dim", 64);
  const auto own = config.positive_integer("qk_nope_head_dim", 128);
  defaults.d_head = shared;
  read_llama_config_without_rope(model, config, defaults);
  if (model.n_kv_heads != model.n_heads)
    config.fail("num_key_value_heads", "the number of query heads");
  model.d_head = shared;
  RopeConfig rope;
  rope.dim = shared;
  if (has_rope) rope = read_llama_rope(model, config, defaults);
  if (rope.dim != shared) config.fail("partial_rotary_factor", "1: see qk_rope_head_dim");
  rope.begin = own;
  if (has_rope) model.ropes = {rope};
  model.d_head = own + shared;
  model.attention_scale = yarn_score_factor(rope) / std::sqrt(static_cast<double>(model.d_head));
  if (config.contains_key("q_lora_rank") && !config.has_value("q_lora_rank")) q_rank = 0;
  model.latent = {.kv_rank = config.positive_integer("kv_lora_rank", 512),
                  .q_rank = config.positive_integer("q_lora_rank", q_rank),
                  .d_value = config.positive_integer("v_head_dim", 128),
                  .d_shared = shared};
  model.names.q = model.latent.q_rank == 0 ? "self_attn.q_proj" : "self_attn.q_b_proj";
  model.names.k = "self_attn.kv_b_proj";
  read_attention_bias(model, config, false);
}

// Reads the attention layers of Kimi Linear from layer_types or 1-based lists; default: 4, 8, ...
void read_kimi_layers(ModelConfig& model, const ConfigReader& config, const ConfigReader& linear) {
  for (auto& layer : model.layers) layer.rope = -1;
  if (config.has_value("layer_types"))
    return read_layer_mixers(model, config, "linear_attention", Mixer::kimi_delta);
  const bool listed = linear.has_value("full_attn_layers") && linear.has_value("kda_layers");
  const auto attention = listed ? linear.integers("full_attn_layers") : std::vector<std::int64_t>();
  const auto others = listed ? linear.integers("kda_layers") : std::vector<std::int64_t>();
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    const auto times = std::ranges::count(attention, i + 1);
    const bool once = times + std::ranges::count(others, i + 1) == 1;
    if (listed && !(once && std::ssize(attention) + std::ssize(others) == model.n_layers))
      linear.fail("kda_layers",
                  fmt::format("every layer from 1 to {} either here or in full_attn_layers",
                              model.n_layers));
    const bool attends = listed ? times > 0 : i > 0 && i % 4 == 0;
    if (!attends) model.layers[as_index(i)].mixer = Mixer::kimi_delta;
  }
  if (std::ranges::none_of(model.layers, &LayerConfig::has_attention))
    linear.fail("full_attn_layers", "at least one layer with attention");
}

// Returns the expert tensor names of published Mixtral, MiniMax-M2 and Kimi Linear checkpoints.
ExpertNames block_sparse_expert_names() {
  return {.router = "block_sparse_moe.gate",
          .gate = "block_sparse_moe.experts.{}.w1",
          .up = "block_sparse_moe.experts.{}.w3",
          .down = "block_sparse_moe.experts.{}.w2"};
}

// Reads the experts of Kimi Linear: as in DeepSeek-V3, with other config keys and tensor names.
void read_kimi_experts(ModelConfig& model, const ConfigReader& config) {
  read_experts(
      model, config,
      {.count = 256, .per_token = 8, .d_mlp = 1024, .per_token_key = "num_experts_per_token"});
  require_config_value(config, "moe_router_activation_func", "sigmoid");
  read_biased_router(model, config, "routed_scaling_factor", "mlp.gate.e_score_correction_bias",
                     2.446);
  model.experts.normalized = config.flag("moe_renormalize", config.flag("norm_topk_prob", true));
  read_expert_groups(model, config, config.positive_integer("num_expert_group", 1));
  read_shared_experts(
      model, config,
      config.has_value("num_shared_experts") ? "num_shared_experts" : "n_shared_experts", 1);
  auto published = block_sparse_expert_names();
  published.selection_bias = published.router + ".e_score_correction_bias";
  published.shared = "block_sparse_moe.shared_experts";
  auto saved = published;  // names in checkpoints saved by transformers
  published.dense = "mlp";
  saved.dense = "block_sparse_moe";
  auto& names = model.names.experts;
  names = {published, saved, names[1], names.back()};  // names[1]: GGUF
  if (config.positive_integer("moe_layer_freq", 1) != 1)
    config.fail("moe_layer_freq", "1: other intervals of experts are not supported");
  read_first_dense_layers(model, config, 1);
  if (!config.has_value("mlp_layer_types")) return;
  const auto types = config.strings("mlp_layer_types");
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (i >= types.size() || (types[i] != "dense" && types[i] != "sparse"))
      config.fail("mlp_layer_types", "dense or sparse for every layer");
    model.layers[i].experts = types[i] == "sparse";
  }
}

// Sets tensor names of Kimi Delta Attention in published and transformers-saved checkpoints.
void set_kimi_tensor_names(ModelConfig& model) {
  MixerNames names{
      .module = "self_attn",
      .q = "self_attn.q_proj",
      .k = "self_attn.k_proj",
      .v = "self_attn.v_proj",
      .z = "self_attn.g_b_proj",
      .b = "self_attn.b_proj",
      .a = "self_attn.f_b_proj",
      .z_latent = "self_attn.g_a_proj",
      .a_latent = "self_attn.f_a_proj",
      .convolutions = {"self_attn.q_conv1d", "self_attn.k_conv1d", "self_attn.v_conv1d"},
      .norm = "self_attn.o_norm",
      .output = "self_attn.o_proj"};
  model.names.mixer = {names};
  names.module = "self_attn.forget_gate";
  names.a = "self_attn.forget_gate.f_b_proj";
  names.a_latent = "self_attn.forget_gate.f_a_proj";
  names.convolutions = {"self_attn.conv1d"};
  model.names.mixer.push_back(names);
}

}  // namespace

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

void read_expert_layers(ModelConfig& model, const ConfigReader& config) {
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
  read_uniform_window(model, config);
  read_experts(model, config, {.count = 8, .per_token = 2});
  model.experts.normalized = true;
  model.names.experts.front() = block_sparse_expert_names();
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
  read_expert_layers(model, config);
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

// ERNIE 4.5 MoE: some layers have shared experts, and experts chosen by softmax score plus bias.
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

// MiniMax-M2: experts with a biased sigmoid router, q/k norms over all heads, partial RoPE.
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
  model.names.experts.front() = block_sparse_expert_names();
  read_biased_router(model, config, "", "mlp.e_score_correction_bias");
  model.names.experts.front().selection_bias = "block_sparse_moe.e_score_correction_bias";
}

// DeepSeek-V3: a biased sigmoid router limited to expert groups. MTP layers are not read.
void read_deepseek_v3(ModelConfig& model, const ConfigReader& config) {
  read_latent_attention(model, config, {.max_positions = 4096}, 1536);
  model.rope_interleaved = model.rope_sorts_pairs = config.flag("rope_interleave", true);
  read_experts(model, config,
               {.count = 256, .per_token = 8, .d_mlp = 2048, .count_key = "n_routed_experts"});
  require_config_value(config, "scoring_func", "sigmoid");
  require_config_value(config, "topk_method", "noaux_tc");
  read_biased_router(model, config, "routed_scaling_factor", "mlp.gate.e_score_correction_bias",
                     2.5);
  model.experts.normalized = config.flag("norm_topk_prob", true);
  read_expert_groups(model, config, 8, 4);
  read_shared_experts(model, config, "n_shared_experts", 1);
  read_first_dense_layers(model, config, 3);
  const auto predictors = config.non_negative_integer(
      "num_nextn_predict_layers", config.non_negative_integer("num_mtp_layers", 1));
  for (std::int64_t i = 0; i < std::min<std::int64_t>(predictors, 16); ++i)
    model.names.unused.push_back(fmt::format("layers.{}.", model.n_layers + i));
}

// DeepSeek-V2: softmax scores without selection bias; expert groups are ranked by their best score.
void read_deepseek_v2(ModelConfig& model, const ConfigReader& config) {
  read_latent_attention(model, config, {.max_positions = 2048}, 1536);
  model.rope_interleaved = true;
  if (config.flag("mlp_bias", false))
    config.fail("mlp_bias", "false: biases of deepseek_v2 are not supported");
  read_experts(model, config,
               {.count = 64, .per_token = 0, .d_mlp = 1407, .count_key = "n_routed_experts"});
  if (model.experts.per_token == 0) config.fail("num_experts_per_tok", "a positive integer");
  require_config_value(config, "scoring_func", "softmax");
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

// Kimi Linear: Kimi Delta Attention in most layers, and latent attention without RoPE.
void read_kimi_linear(ModelConfig& model, const ConfigReader& config) {
  const auto max_positions = config.positive_integer("model_max_length", 1 << 20);
  read_latent_attention(model, config, {.norm_eps = 1e-5, .max_positions = max_positions}, 0,
                        false);
  model.tied = false;
  if (!config.flag("mla_use_nope", true))
    config.fail("mla_use_nope", "true: kimi_linear models with RoPE are not supported");
  if (model.activation != Activation::silu)
    config.fail("hidden_act", "silu, the activation of the convolution");
  const std::string section = "linear_attn_config";
  const auto none = Json::object();
  const ConfigReader linear(config.has_value(section) ? config.raw_value(section) : none,
                            config.where() + ": " + section);
  read_kimi_layers(model, config, linear);
  read_kimi_experts(model, config);
  if (std::ranges::none_of(model.layers, &LayerConfig::has_state)) return;
  const auto heads =
      linear.positive_integer("num_heads", config.positive_integer("linear_num_heads", 32));
  const auto width =
      linear.positive_integer("head_dim", config.positive_integer("linear_head_dim", 128));
  if (std::max(heads, width) > 65536)
    reject("{}: KDA has {} heads of dimension {}, expected at most 65536 of both", config.where(),
           heads, width);
  auto& mixer = model.mixer;
  mixer.value_heads = mixer.key_heads = heads;
  mixer.d_value = mixer.d_key = width;
  mixer.taps = linear.has_value("short_conv_kernel_size")
                   ? read_convolution_kernel_size(linear, "short_conv_kernel_size", 4)
                   : read_convolution_kernel_size(config, "linear_conv_kernel_dim", 4);
  mixer.norm_eps = model.norm_eps;
  mixer.kind = Mixer::kimi_delta;
  set_kimi_tensor_names(model);
}

}  // namespace qkscope
