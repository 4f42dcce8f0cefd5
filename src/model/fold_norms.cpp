#include "model/fold_norms.h"

#include <algorithm>

#include "core/convert.h"
#include "core/thread_pool.h"

namespace qkscope {
namespace {

// Column i of `matrix` (out, in) times norm[i], as a tensor that the model then owns.
void fold_into(WeightMatrix& matrix, std::span<const float> norm, LoadedCheckpoint& model) {
  Tensor folded = to_float32(matrix.values);
  const auto in = folded.dim(1);
  float* values = folded.data<float>();
  const float scale = matrix.scale;
  parallel_for(folded.dim(0), [&](std::int64_t row) {
    for (std::int64_t i = 0; i < in; ++i)
      values[row * in + i] *= scale * norm[static_cast<std::size_t>(i)];
  });
  matrix = {folded.view(), 1.0f};
  model.folded.push_back(std::move(folded));
}

void become_one(std::vector<float>& norm) {
  std::fill(norm.begin(), norm.end(), 1.0f);
}

}  // namespace

void fold_norms(LoadedCheckpoint& model) {
  for (auto& layer : model.weights.layers) {
    if (layer.input_norm.empty()) continue;  // a cross-attention layer
    for (auto* linear : {&layer.q, &layer.k, &layer.v})
      fold_into(linear->weight, layer.input_norm, model);
    for (auto* linear : {&layer.gate, &layer.up}) fold_into(linear->weight, layer.mlp_norm, model);
    become_one(layer.input_norm);
    become_one(layer.mlp_norm);
  }
  fold_into(model.weights.head, model.weights.final_norm, model);
  become_one(model.weights.final_norm);
}

}  // namespace qkscope
