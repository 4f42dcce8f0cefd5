// GPT-NeoX and Pythia: LayerNorm with bias, parallel attention and MLP, partial RoPE, one matrix
// that interleaves q, k and v by head, an ungated MLP.
#include "engine/model/family.h"

namespace qkscope {

void read_gpt_neox(ModelConfig& model, const ConfigReader& config) {
  read_llama_base(model, config,
                  {.rope_theta = config.number("rotary_emb_base", 10000.0, kRopeTheta),
                   .norm_eps = 1e-5,
                   .norm_eps_key = "layer_norm_eps",
                   .activation = "gelu",
                   .partial_rotary_factor = config.number("rotary_pct", 0.25, {0.0, 1.0})});
  model.norm = NormKind::layer;
  model.norm_bias = true;
  model.parallel_residual = config.flag("use_parallel_residual", true);
  read_attention_bias(model, config, true);
  model.mlp_bias = true;
  auto& names = model.names;
  names.embedding = "embed_in";
  names.final_norm = "final_layer_norm";
  names.head = "embed_out";
  names.qkv = "attention.query_key_value";
  names.qkv_by_head = true;
  names.o = "attention.dense";
  names.gate = "";
  names.up = "mlp.dense_h_to_4h";
  names.down = "mlp.dense_4h_to_h";
  names.buffers = {".attention.bias", ".attention.masked_bias"};
}

}  // namespace qkscope
