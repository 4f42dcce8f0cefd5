// Describes GGUF architectures in JSON: how llama.cpp's converter renames, reorders or drops parts
// of a Hugging Face checkpoint.
#pragma once

namespace qkscope {

// Fields of a row:
//   name               value of general.architecture
//   like               name of the row that this row extends (as a JSON merge patch)
//   model_type         model_type in config.json
//   modules            names of modules of a layer that differ from kGgufModules; a name with an
//                      ending (attn_sinks.weight) is that of a tensor
//   tensors            names of tensors outside of layers in GGUF and in Hugging Face checkpoints
//   embedding          name of the embedding in Hugging Face checkpoints
//   final_norm         names of the final norm in GGUF and in Hugging Face checkpoints
//   mixer              type of the layers without attention; GGUF gives them zero key heads
//   layer_module       every layer is one module of this name: mixer, attention, MLP or experts
//   mamba2             layers have Mamba 2, beside attention or in its place
//   may_lack_rope      attention has no RoPE if rope.scaling.finetuned is false
//   settings, optional metadata keys, required or optional, and their names in config.json
//   constants          settings of config.json that GGUF files of the architecture do not store
//   experts            a mixture of experts; with `mixer`, the number of experts may be zero
//   slides             layers may have a sliding window
//   interleaves_heads  the converter permutes the rows of q and k
//   partial_rope       RoPE may rotate a part of each head
//   layer_norm         norms have attention.layer_norm_epsilon
//   is_gemma           scores are scaled by query_pre_attn_scalar
//   norms_add_one      norms are stored as 1 + weight, except those of mixers
//   gemma4             heads and MLPs differ by layer; per-layer inputs
//   latent             multi-head latent attention (MLA)
//   delta_net          layers have gated delta nets in place of attention
//   tiles_values       the converter permutes the value heads of delta nets
//   sigmoid_router     a router with sigmoid scores
//   predicts_tokens    the last layers may predict further tokens (MTP); they are not read
inline constexpr const char* kGgufArchitectures = R"([
{"name": "llama", "model_type": "llama", "interleaves_heads": true},
{"name": "qwen2", "model_type": "qwen2"},
{"name": "qwen3", "model_type": "qwen3"},
{"name": "smollm3", "model_type": "smollm3", "interleaves_heads": true},
{"name": "gemma2", "model_type": "gemma2", "is_gemma": true, "norms_add_one": true, "slides": true,
 "modules": {"post_attention_norm": "post_attention_layernorm",
 "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"},
 "optional": {"final_logit_softcapping": "final_logit_softcapping",
 "attn_logit_softcapping": "attn_logit_softcapping", "rope.freq_base_swa": "rope_local_base_freq"}},
{"name": "gemma3", "like": "gemma2", "model_type": "gemma3_text"},
{"name": "phi3", "model_type": "phi3", "partial_rope": true, "slides": true,
 "modules": {"ffn_up": "mlp.gate_up_proj"}},
{"name": "qwen3moe", "model_type": "qwen3_moe", "experts": true,
 "constants": {"norm_topk_prob": true}},
{"name": "olmoe", "model_type": "olmoe", "experts": true},
{"name": "exaone4", "model_type": "exaone4", "slides": true, "constants": {"sliding_window": null},
 "modules": {"post_attention_norm": "post_attention_layernorm",
             "post_ffw_norm": "post_feedforward_layernorm"}},
{"name": "cohere2", "model_type": "cohere2", "slides": true, "layer_norm": true,
 "settings": {"attention.layer_norm_epsilon": "layer_norm_eps", "logit_scale": "logit_scale"}},
{"name": "seed_oss", "model_type": "seed_oss",
 "modules": {"post_attention_norm": "post_attention_layernorm"}},
{"name": "ernie4_5", "model_type": "ernie4_5"},
{"name": "ernie4_5-moe", "model_type": "ernie4_5_moe", "experts": true,
 "modules": {"exp_probs_b.bias": "mlp.moe_statics.e_score_correction_bias"},
 "settings": {"expert_shared_count": "moe_num_shared_experts",
              "leading_dense_block_count": "moe_layer_start_index",
              "interleave_moe_layer_step": "moe_layer_interval"}},
{"name": "hunyuan-dense", "model_type": "hunyuan_v1_dense",
 "modules": {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}},
{"name": "olmo2", "like": "exaone4", "model_type": "olmo2", "constants": null},
{"name": "granite", "model_type": "granite", "interleaves_heads": true,
 "settings": {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier",
              "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"}},
{"name": "glm4", "model_type": "glm4", "partial_rope": true,
 "modules": {"ffn_up": "mlp.gate_up_proj", "post_attention_norm": "post_self_attn_layernorm",
             "post_ffw_norm": "post_mlp_layernorm"}},
{"name": "starcoder2", "model_type": "starcoder2", "layer_norm": true,
 "modules": {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
 "settings": {"attention.layer_norm_epsilon": "norm_epsilon"}},
{"name": "gpt-oss", "model_type": "gpt_oss", "experts": true, "slides": true,
 "constants": {"rope_scaling": {"truncate": false}},
 "modules": {"post_attention_norm": "post_attention_layernorm",
             "attn_sinks.weight": "self_attn.sinks",
             "ffn_gate_exps.bias": "mlp.experts.gate_proj.weight_bias",
             "ffn_up_exps.bias": "mlp.experts.up_proj.weight_bias",
             "ffn_down_exps.bias": "mlp.experts.down_proj.weight_bias"}},
{"name": "llama4", "model_type": "llama4_text", "experts": true,
 "modules": {"ffn_gate": "feed_forward.gate_proj", "ffn_up": "feed_forward.up_proj",
             "ffn_down": "feed_forward.down_proj"},
 "settings": {"interleave_moe_layer_step": "interleave_moe_layer_step",
 "expert_feed_forward_length": "intermediate_size", "feed_forward_length": "intermediate_size_mlp"}},
{"name": "deepseek2", "model_type": "deepseek_v2", "experts": true, "latent": true,
 "constants": {"q_lora_rank": null, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0},
 "modules": {"attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
             "attn_q_b": "self_attn.q_b_proj", "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
             "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_kv_b": "self_attn.kv_b_proj",
             "attn_k_b": "self_attn.kv_b_proj", "attn_v_b": "self_attn.kv_b_proj",
             "exp_probs_b.bias": "mlp.gate.e_score_correction_bias"},
 "settings": {"attention.kv_lora_rank": "kv_lora_rank", "expert_shared_count": "n_shared_experts",
              "leading_dense_block_count": "first_k_dense_replace"},
 "optional": {"attention.q_lora_rank": "q_lora_rank", "expert_group_count": "n_group",
  "expert_group_used_count": "topk_group", "expert_weights_scale": "routed_scaling_factor"}},
{"name": "glm4moe", "model_type": "glm4_moe", "experts": true, "partial_rope": true,
 "sigmoid_router": true, "predicts_tokens": true, "constants": {"first_k_dense_replace": 0},
 "settings": {"expert_shared_count": "n_shared_experts"},
 "modules": {"post_attention_norm": "post_attention_layernorm",
             "exp_probs_b.bias": "mlp.gate.e_score_correction_bias"},
 "optional": {"leading_dense_block_count": "first_k_dense_replace", "expert_group_count": "n_group",
  "expert_group_used_count": "topk_group", "expert_weights_scale": "routed_scaling_factor"}},
{"name": "minimax-m2", "model_type": "minimax_m2", "experts": true, "partial_rope": true,
 "sigmoid_router": true, "constants": {"norm_topk_prob": true},
 "modules": {"exp_probs_b.bias": "mlp.e_score_correction_bias"}},
{"name": "afmoe", "model_type": "afmoe", "experts": true, "slides": true, "sigmoid_router": true,
 "constants": {"norm_topk_prob": true, "mup_enabled": true, "num_dense_layers": 0},
 "modules": {"attn_gate": "self_attn.gate_proj", "post_attention_norm": "post_attention_layernorm",
             "ffn_norm": "pre_mlp_layernorm", "post_ffw_norm": "post_mlp_layernorm",
             "ffn_gate_inp": "mlp.router.gate", "exp_probs_b.bias": "mlp.expert_bias"},
 "settings": {"attention.sliding_window": "sliding_window",
  "expert_shared_count": "num_shared_experts"}, "optional": {"expert_weights_scale": "route_scale",
  "leading_dense_block_count": "num_dense_layers"}},
{"name": "lfm2", "model_type": "lfm2", "final_norm": ["token_embd_norm", "embedding_norm"],
 "mixer": "conv", "constants": {"block_auto_adjust_ff_dim": false},
 "modules": {"attn_norm": "operator_norm", "attn_q_norm": "self_attn.q_layernorm",
  "attn_k_norm": "self_attn.k_layernorm", "attn_output": "self_attn.out_proj",
  "ffn_norm": "ffn_norm", "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3",
  "ffn_down": "feed_forward.w2", "shortconv.conv": "conv.conv",
  "shortconv.in_proj": "conv.in_proj", "shortconv.out_proj": "conv.out_proj"},
 "settings": {"attention.layer_norm_rms_epsilon": "norm_eps", "shortconv.l_cache": "conv_L_cache"}},
{"name": "falcon-h1", "model_type": "falcon_h1", "mamba2": true,
 "final_norm": ["output_norm", "final_layernorm"], "constants": {"mamba_norm_before_gate": false},
 "modules": {"ffn_norm": "pre_ff_layernorm.weight", "ffn_gate": "feed_forward.gate_proj",
             "ffn_up": "feed_forward.up_proj", "ffn_down": "feed_forward.down_proj"}},
{"name": "granitehybrid", "like": "granite", "model_type": "granitemoehybrid", "mamba2": true,
 "mixer": "linear_attention", "experts": true, "may_lack_rope": true, "partial_rope": true,
 "settings": {"feed_forward_length": "shared_intermediate_size"},
 "optional": {"expert_shared_feed_forward_length": "shared_intermediate_size"}},
{"name": "nemotron_h", "model_type": "nemotron_h", "mamba2": true, "mixer": "linear_attention",
 "layer_module": "mixer", "embedding": "embeddings", "final_norm": ["output_norm", "norm_f"],
 "experts": true, "sigmoid_router": true, "predicts_tokens": true, "interleaves_heads": true,
 "may_lack_rope": true, "partial_rope": true, "layer_norm": true,
 "modules": {"attn_norm": "norm", "exp_probs_b.bias": "mixer.gate.e_score_correction_bias",
  "ffn_up_exps.weight": "mixer.experts.up_proj", "ffn_down_exps.weight": "mixer.experts.down_proj"},
 "settings": {"attention.layer_norm_epsilon": "layer_norm_epsilon"},
 "optional": {"attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
  "expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size",
  "expert_shared_count": "n_shared_experts", "expert_group_count": "n_group",
  "expert_group_used_count": "topk_group", "expert_weights_scale": "routed_scaling_factor"}},
{"name": "nemotron_h_moe", "like": "nemotron_h"},
{"name": "qwen3next", "model_type": "qwen3_next", "experts": true, "delta_net": true,
 "norms_add_one": true, "partial_rope": true, "predicts_tokens": true,
 "constants": {"norm_topk_prob": true},
 "modules": {"post_attention_norm": "post_attention_layernorm",
  "ffn_gate_inp_shexp": "mlp.shared_expert_gate", "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
  "ffn_up_shexp": "mlp.shared_expert.up_proj", "ffn_down_shexp": "mlp.shared_expert.down_proj",
  "attn_qkv": "linear_attn.in_proj_qkv", "attn_gate": "linear_attn.in_proj_z",
  "ssm_in": "linear_attn.in_proj_qkvz", "ssm_ba": "linear_attn.in_proj_ba",
  "ssm_beta": "linear_attn.in_proj_b", "ssm_alpha": "linear_attn.in_proj_a",
  "ssm_conv1d": "linear_attn.conv1d", "ssm_dt.bias": "linear_attn.dt_bias",
  "ssm_a": "linear_attn.A_log", "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj"},
 "optional": {"full_attention_interval": "full_attention_interval",
  "expert_shared_feed_forward_length": "shared_expert_intermediate_size"}},
{"name": "qwen35", "like": "qwen3next", "model_type": "qwen3_5_text", "experts": false,
 "constants": null, "tiles_values": true},
{"name": "kimi-linear", "like": "deepseek2", "model_type": "kimi_linear",
 "mixer": "linear_attention", "sigmoid_router": true, "may_lack_rope": true,
 "constants": {"norm_topk_prob": true},
 "modules": {"ssm_a": "self_attn.A_log", "ssm_dt.bias": "self_attn.dt_bias",
  "ssm_beta": "self_attn.b_proj", "ssm_f_a": "self_attn.f_a_proj", "ssm_f_b": "self_attn.f_b_proj",
  "ssm_g_a": "self_attn.g_a_proj", "ssm_g_b": "self_attn.g_b_proj", "ssm_norm": "self_attn.o_norm",
  "ssm_conv1d_q": "self_attn.q_conv1d", "ssm_conv1d_k": "self_attn.k_conv1d",
  "ssm_conv1d_v": "self_attn.v_conv1d"},
 "settings": {"attention.head_count": "linear_num_heads", "kda.head_dim": "linear_head_dim",
              "ssm.conv_kernel": "linear_conv_kernel_dim"}},
{"name": "gemma4", "like": "gemma2", "model_type": "gemma4_text", "gemma4": true,
 "is_gemma": false, "norms_add_one": false,
 "tensors": {"per_layer_token_embd.weight": "embed_tokens_per_layer.weight",
             "per_layer_model_proj.weight": "per_layer_model_projection.weight",
             "per_layer_proj_norm.weight": "per_layer_projection_norm.weight"},
 "modules": {"inp_gate": "per_layer_input_gate", "proj": "per_layer_projection",
             "post_norm": "post_per_layer_input_norm", "layer_output_scale.weight": "layer_scalar"},
 "settings": {"attention.sliding_window": "sliding_window",
              "embedding_length_per_layer_input": "hidden_size_per_layer_input"},
 "optional": {"attn_logit_softcapping": null, "rope.freq_base_swa": null}}
])";

// Maps module names of a layer in GGUF (NAME in "blk.3.NAME.weight") to Hugging Face names. The
// tensors ssm_dt.bias, ssm_a and ssm_d are exceptions: their names do not end in ".weight".
inline constexpr const char* kGgufModules = R"({
"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
"attn_v": "self_attn.v_proj", "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj",
"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
"ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
"ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
"ffn_gate_exps": "mlp.experts.gate_proj", "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
"ffn_up_exps": "mlp.experts.up_proj", "ffn_up_shexp": "mlp.shared_experts.up_proj",
"ffn_down_exps": "mlp.experts.down_proj", "ffn_down_shexp": "mlp.shared_experts.down_proj",
"ssm_in": "mamba.in_proj", "ssm_conv1d": "mamba.conv1d", "ssm_dt.bias": "mamba.dt_bias",
"ssm_a": "mamba.A_log", "ssm_d": "mamba.D", "ssm_norm": "mamba.norm", "ssm_out": "mamba.out_proj"
})";

// Metadata keys that do not affect the computation, with any value (null) or with the given value.
// Sizes follow from tensor shapes or describe Mamba 2 layers that a Granite 4 model lacks; the
// original context length matters only with RoPE scaling; multimodal RoPE rotates text as usual.
inline constexpr const char* kGgufNeutralKeys = R"({
"vocab_size": null, "expert_shared_feed_forward_length": null, "tensor_data_layout": null,
"pooling_type": null, "rope.dimension_sections": null, "rope.scaling.original_context_length": null, "attention.causal": true,
"expert_used_count": 0, "rope.scaling.finetuned": true, "rope.scaling.attn_factor": 1.0,
"rope.scaling.yarn_ext_factor": 1.0, "ssm.conv_kernel": null, "ssm.inner_size": null,
"ssm.state_size": null, "ssm.time_step_rank": null, "ssm.group_count": null
})";

}  // namespace qkscope
