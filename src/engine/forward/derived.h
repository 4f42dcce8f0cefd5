// What derived hook points show: computed on the host, from activations and weights, for whoever
// asks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// (rows, 1): what the norm divides the rows of x (rows, d_model) by.
Tensor norm_scales(ConstTensorView x, const ModelConfig& model);

// (rows, heads, d_model): what each head's z (rows, heads, d_head) adds by the output projection
// (d_model, heads * d_head), without its bias.
Tensor head_results(ConstTensorView z, const WeightMatrix& output);

// (rows, heads, d_model): x (rows, d_model) for every head.
Tensor repeated(ConstTensorView x, std::int64_t heads);

// The first `heads` of all, and some rows (none: all of them), of (rows, heads, d_model).
Tensor first_heads(ConstTensorView all, std::int64_t heads);
Tensor chosen_rows(ConstTensorView all, std::span<const std::int64_t> rows);

// q, k or v of those heads whose input is not the residual stream.
class ProjectedHeads {
 public:
  ProjectedHeads(const ModelConfig& model, const NormWeights& norm, const Linear& linear)
      : model_(&model), norm_(&norm), linear_(&linear) {}

  // x (rows, d_model), inputs (rows, heads, d_model).
  void project_changed(ConstTensorView x, ConstTensorView inputs);
  bool empty() const { return heads_.empty(); }

  // Writes them into (rows, heads, d_head).
  std::function<void(TensorView)> replace() const;

 private:
  struct Head {
    std::int64_t number;
    Tensor values;  // (rows, d_head)
  };

  const ModelConfig* model_;
  const NormWeights* norm_;
  const Linear* linear_;
  std::vector<Head> heads_;
};

}  // namespace qkscope
