// The weights of a model as views into its checkpoint, in the checkpoint's own element type.
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/tensor.h"
#include "model/config.h"

namespace qkscope {

struct WeightMatrix {
  ConstTensorView values;  // (out, in)
  float scale = 1.0f;      // multiplies every value; not 1 for FP8 only
};

struct Linear {
  WeightMatrix weight;
  std::vector<float> bias;  // (out) or empty
};

struct LayerWeights {
  std::vector<float> input_norm;           // (d_model)
  Linear q;                                // (n_heads * d_head, d_model)
  Linear k;                                // (n_kv_heads * d_head, d_model)
  Linear v;                                // (n_kv_heads * d_head, d_model)
  std::vector<float> q_norm;               // (d_head) or empty
  std::vector<float> k_norm;               // (d_head) or empty
  Linear o;                                // (d_model, n_heads * d_head)
  std::vector<float> post_attention_norm;  // (d_model) or empty
  std::vector<float> mlp_norm;             // (d_model)
  Linear gate;                             // (d_mlp, d_model)
  Linear up;                               // (d_mlp, d_model)
  Linear down;                             // (d_model, d_mlp)
  std::vector<float> post_mlp_norm;        // (d_model) or empty
};

struct ModelWeights {
  WeightMatrix embedding;                  // (embedding_rows, d_model)
  std::vector<LayerWeights> layers;  // (n_layers); empty fields on cross-attention layers
  std::vector<float> final_norm;     // (d_model)
  WeightMatrix head;                       // (vocab_size, d_model)
};

// Norms and biases are small and are widened here; where a norm multiplies by 1 + weight, the one
// is added. Matrices stay in the mapped file. Every name and shape is checked first.
ModelWeights bind_weights(const ModelConfig& model, const Checkpoint& checkpoint);

}  // namespace qkscope
