// Per-layer inputs of a model on the GPU; PerLayerInputs in qkscope/model.h has the formulas.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/device_weights.h"
#include "engine/device/cuda/pass_context.h"
#include "engine/device/cuda/residual_updates.h"

namespace qkscope::cuda {

class PerLayerEmbeddings {
 public:
  explicit PerLayerEmbeddings(const PassContext& pass) : pass_(pass) {}

  // Computes the inputs of all layers from the embedded tokens in the residual stream.
  void embed(const DeviceSharedWeights& weights) {
    const auto rows = pass_.rows.count();
    const auto width = pass_.model.per_layer.width;
    void* const inputs = pass_.reserve(inputs_, rows * row_width(), "per-layer inputs");
    pass_.multiply(pass_.activations.residual(), weights.per_layer_projection, inputs);
    // With eps scaled by d_model, RMSNorm(x) equals RMSNorm(x / sqrt(d_model)).
    pass_.normalize({.x = inputs,
                     .norm = weights.per_layer_norm,
                     .y = inputs,
                     .rows = rows * pass_.model.n_layers,
                     .n = width},
                    pass_.model.norm_eps * static_cast<double>(pass_.model.d_model));
    pass_.embed({.table = weights.per_layer_embedding.weight,
                 .ids = pass_.rows.token_ids(),
                 .y = inputs,
                 .count = rows,
                 .n = row_width(),
                 .scale = std::sqrt(static_cast<float>(width)),
                 .sum_factor = std::sqrt(0.5f)});
  }

  // Adds the contribution of the input of layer number `number` to the residual stream.
  void add_to_residual(const DeviceLayer& layer, std::int64_t number, ResidualUpdates& updates,
                       ResidualAddition addition) {
    const auto rows = pass_.rows.count();
    const auto width = pass_.model.per_layer.width;
    void* const gate = pass_.reserve(gate_, rows * width, "per-layer inputs");
    void* const input = pass_.reserve(input_, rows * width, "per-layer inputs");
    pass_.copy({.x = inputs_.as<std::byte>() + number * width * element_bytes(pass_.dtype),
                .x_stride = row_width(),
                .x_rows = pass_.rows.kept_rows(),
                .y = input,
                .y_stride = width,
                .count = rows,
                .n = width});
    pass_.multiply(pass_.activations.residual(), layer.per_layer_gate, gate);
    apply_gate({.activation = pass_.model.activation,
                .gate_up = gate,
                .up = input,
                .y = gate,
                .rows = rows,
                .n = width,
                .dtype = pass_.dtype},
               pass_.stream);
    updates.add_product(
        {.x = gate, .linear = layer.per_layer_output, .rows = rows},
        {.running = rows, .post_norm = layer.post_per_layer_norm, .addition = addition});
  }

 private:
  std::int64_t row_width() const { return pass_.model.n_layers * pass_.model.per_layer.width; }

  const PassContext& pass_;
  DeviceMemory inputs_;  // (rows of the batch, n_layers, per_layer.width)
  DeviceMemory input_;   // (active rows, per_layer.width) of the current layer
  DeviceMemory gate_;    // (active rows, per_layer.width)
};

}  // namespace qkscope::cuda
