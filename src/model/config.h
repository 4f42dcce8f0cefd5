// What a model is, in the words of the engine, whatever family and spelling its config.json has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "model/rope.h"

namespace qkscope {

enum class Activation { silu, gelu_tanh, gelu };

struct LayerConfig {
  bool cross_attention = false;  // mllama: needs an image, skipped for text
  std::int64_t window = 0;       // keys a query sees, itself included; 0: all before it
  int rope = 0;                  // index into ModelConfig::ropes; -1: no position embedding (NoPE)
};

// Ministral 3: after RoPE the query is multiplied by 1 + beta ln(1 + floor(position /
// original_max)).
struct QueryScaling {
  double beta = 0.0;
  std::int64_t original_max = 0;
};

// Where a family keeps its norms and gate under other names than Llama. Empty: not there.
struct TensorNames {
  std::string mlp_norm = "post_attention_layernorm";
  std::string post_attention_norm;  // on the attention's output, before it is added
  std::string post_mlp_norm;        // on the MLP's output, before it is added
  bool fused_gate_up = false;       // mlp.gate_up_proj: gate rows, then up rows
};

struct ModelConfig {
  std::string family;    // model_type of the language model: "smollm3"
  bool wrapped = false;  // a multimodal checkpoint whose language model is used
  std::int64_t n_layers = 0;
  std::int64_t d_model = 0;
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  std::int64_t d_mlp = 0;
  std::int64_t vocab_size = 0;
  std::int64_t embedding_rows = 0;  // vocab_size, or more where the family has extra rows
  std::int64_t max_positions = 0;
  std::vector<LayerConfig> layers;  // (n_layers)

  double norm_eps = 1e-6;
  bool norm_adds_one = false;  // RMSNorm multiplies by 1 + weight
  bool qk_norm = false;        // RMSNorm over d_head on q and k before RoPE
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  Activation activation = Activation::silu;
  double embedding_scale = 1.0;
  double attention_scale = 0.0;  // multiplies q.k
  double logit_softcap = 0.0;    // 0: none

  std::vector<RopeConfig> ropes;
  bool rope_interleaved = false;  // pairs (2i, 2i+1) instead of (i, i + dim/2)
  std::optional<QueryScaling> query_scaling;

  bool tied = false;  // the output embedding is the input embedding when the file has no lm_head
  bool fp8 = false;   // weights may be E4M3 with a scale each
  std::string stored_dtype;  // torch_dtype or dtype, "" when the file does not say
  TensorNames names;

  std::int64_t heads_per_kv_head() const { return n_heads / n_kv_heads; }
  const RopeConfig* rope(std::int64_t layer) const {
    const int index = layers[static_cast<std::size_t>(layer)].rope;
    return index < 0 ? nullptr : &ropes[static_cast<std::size_t>(index)];
  }
};

// Understands config.json (already merged with any overrides). `where` names it in messages.
ModelConfig read_model_config(const Json& config, const std::string& where);

}  // namespace qkscope
