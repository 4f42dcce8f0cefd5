// Derived hook points: values computed on the host from activations and weights, on request only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Returns shape (rows, 1): the divisor of the norm for each row of x (rows, d_model).
Tensor norm_scales(ConstTensorView x, const ModelConfig& model);

// Returns shape (rows, heads, d_model): the contribution of each head of z (rows, heads, d_head)
// through the output projection (d_model, heads * d_head), without bias.
Tensor head_results(ConstTensorView z, const WeightMatrix& output);

// Returns shape (rows, heads, d_model): a copy of x (rows, d_model) per head.
Tensor repeat_per_head(ConstTensorView x, std::int64_t heads);

// Return the first heads, or some rows (empty: all), of (rows, heads, d_model).
Tensor first_heads(ConstTensorView all, std::int64_t heads);
Tensor select_rows(ConstTensorView all, std::span<const std::int64_t> rows);

// q, k or v of heads whose input an observer replaced.
class ProjectedHeads {
 public:
  ProjectedHeads(const ModelConfig& model, const NormWeights& norm, const Linear& linear)
      : model_(&model), norm_(&norm), linear_(&linear) {}

  // Projects heads whose input (rows, heads, d_model) differs from x (rows, d_model).
  void project_changed(ConstTensorView x, ConstTensorView inputs);
  bool empty() const { return heads_.empty(); }

  // Returns a function that writes the projected heads into (rows, heads, d_head).
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
