// gpt-oss: a mixture of experts with biases and clamped SwiGLU in every layer, learned attention
// sinks, and a sliding window on every other layer. Published in MXFP4.
#include "engine/model/family.h"

namespace qkscope {
namespace {

// The default is YaRN with an original context of 4096 positions.
RopeConfig read_gpt_oss_rope(const ModelConfig& model, const ConfigReader& config,
                             const LlamaDefaults& defaults) {
  auto rope = read_llama_rope(model, config, defaults);
  if (config.has("rope_scaling") || config.has("rope_parameters")) return rope;
  rope.type = RopeType::yarn;
  rope.factor = 32.0;
  rope.original_max = 4096;
  rope.truncate = false;
  return rope;
}

}  // namespace

void read_gpt_oss(ModelConfig& model, const ConfigReader& config) {
  const LlamaDefaults defaults{
      .rope_theta = 150000.0, .norm_eps = 1e-5, .d_head = 64, .max_positions = 131072};
  read_llama_body(model, config, defaults);
  model.ropes = {read_gpt_oss_rope(model, config, defaults)};
  read_attention_bias(model, config, true);
  read_alternating_windows(model, config, 128);
  model.activation = Activation::clamped_swiglu;
  model.swiglu.alpha = static_cast<float>(config.number("swiglu_alpha", 1.702, {1e-3, 1e3}));
  model.swiglu.limit = static_cast<float>(config.number("swiglu_limit", 7.0, {1e-3, 1e6}));
  read_experts(model, config,
               {.count_key = config.has("num_experts") ? "num_experts" : "num_local_experts",
                .count = 128,
                .per_token = 4,
                .d_mlp = model.d_mlp});
  model.experts.normalized = model.experts.bias = model.experts.router_bias = true;
  for (auto& layer : model.layers) layer.experts = true;
  model.names.sinks = "self_attn.sinks";
  ExpertNames plain = experts_in_one_tensor();
  plain.router = "mlp.router";
  plain.transposed = plain.interleaved = true;
  ExpertNames mxfp4 = plain;
  mxfp4.transposed = false;
  mxfp4.mxfp4 = true;
  model.names.experts = {plain, mxfp4};
}

}  // namespace qkscope
