// Additions of attention and MLP outputs to the residual stream. The output projection accumulates
// into the residual (beta = 1) unless a buffer is needed to normalise, observe or edit the update.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/device_weights.h"
#include "engine/device/cuda/pass_context.h"

namespace qkscope::cuda {

// Rows of the residual stream that receive an update, and how the update is added.
struct ResidualUpdateTarget {
  std::int64_t begin = 0;    // first row of the update among the active rows
  std::int64_t running = 0;  // number of active rows
  DeviceNorm post_norm;      // norm of the update before the addition; (d_model) or none
  ResidualAddMode addition = ResidualAddMode::at_once;
};

class ResidualUpdates {
 public:
  explicit ResidualUpdates(const PassContext& pass) : pass_(pass) {}

  void discard_deferred_update() { deferred_.reset(); }

  // Adds the product to the residual rows from target.begin on; product.y is ignored. If an
  // observer reads the update, the product is computed a second time for the observer, so that the
  // residual stays bit-identical to a run without an observer.
  void add_product(MatrixProduct product, const ResidualUpdateTarget& target) {
    const bool normalized = target.post_norm.weight != nullptr;
    const bool deferred = target.addition == ResidualAddMode::deferred;
    product.factor = static_cast<float>(pass_.model.residual_scale);
    if (normalized || target.addition != ResidualAddMode::at_once) {
      activations_.reserve_residual_update(target.running);
      product.y = activations_.residual_update(target.begin);
      pass_.products.multiply(product);
    }
    if (deferred) deferred_ = DeferredUpdate{.product = product, .normalized = normalized};
    if (normalized)
      normalize_or_add_update(target.begin, product.rows, target.post_norm, !deferred);
    else if (!deferred)
      add_to_residual(product, target.begin);
  }

  // Normalises Activations::residual_update() and, unless deferred, adds it to the residual stream.
  void add_buffered_update(std::int64_t count, const ResidualUpdateTarget& target) {
    const bool deferred = target.addition == ResidualAddMode::deferred;
    if (!deferred || target.post_norm.weight != nullptr)
      normalize_or_add_update(target.begin, count, target.post_norm, !deferred);
  }

  // Records that an observer edited the attention or MLP output before its deferred addition.
  void mark_update_edited() {
    if (deferred_) deferred_->edited = true;
  }
  // Adds the deferred update; if unedited, the residual is bit-identical to one without observers.
  void add_deferred_update(std::int64_t running) {
    if (deferred_ && !deferred_->edited && !deferred_->normalized)
      add_to_residual(deferred_->product, 0);
    else
      normalize_or_add_update(0, running, {}, true);
    deferred_.reset();
  }

 private:
  struct DeferredUpdate {
    MatrixProduct product;  // computes the update of all rows
    bool normalized = false;
    bool edited = false;
  };

  void add_to_residual(MatrixProduct product, std::int64_t begin) {
    product.y = activations_.residual(begin);
    product.accumulate = true;
    pass_.products.multiply(product);
  }

  // Applies post_norm, if set, to the update rows in place. If `add`, adds them to the residual.
  void normalize_or_add_update(std::int64_t begin, std::int64_t count, const DeviceNorm& post_norm,
                               bool add) {
    void* update = activations_.residual_update(begin);
    pass_.normalize_rows({.x = update,
                          .norm = post_norm,
                          .kind = pass_.model.norm,
                          .y = post_norm.weight != nullptr ? update : nullptr,
                          .residual = add ? activations_.residual(begin) : nullptr,
                          .rows = count,
                          .n = pass_.model.d_model},
                         pass_.model.norm_eps);
  }

  const PassContext& pass_;
  Activations& activations_ = pass_.activations;
  std::optional<DeferredUpdate> deferred_;
};

// Per-layer token embeddings (Gemma 4); PerLayerInputs in qkscope/model.h has the formulas.
class PerLayerEmbeddings {
 public:
  explicit PerLayerEmbeddings(const PassContext& pass) : pass_(pass) {}

  // Computes the per-layer inputs of all layers from the embedded tokens in the residual stream.
  void embed_tokens(const DeviceNonLayerWeights& weights) {
    const auto rows = pass_.rows.count();
    const auto width = pass_.model.per_layer.width;
    void* const inputs = pass_.reserve_elements(inputs_, rows * row_width(), "per-layer inputs");
    pass_.apply_linear(pass_.activations.residual(), weights.per_layer_projection, inputs);
    // With eps scaled by d_model, RMSNorm(x) equals RMSNorm(x / sqrt(d_model)).
    pass_.normalize_rows({.x = inputs,
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

  // Adds the contribution of the per-layer input of layer `number` to the residual stream.
  void add_to_residual(const DeviceLayer& layer, std::int64_t number, ResidualUpdates& updates,
                       ResidualAddMode addition) {
    const auto rows = pass_.rows.count();
    const auto width = pass_.model.per_layer.width;
    void* const gate = pass_.reserve_elements(gate_, rows * width, "per-layer inputs");
    void* const input = pass_.reserve_elements(input_, rows * width, "per-layer inputs");
    pass_.copy_rows({.x = inputs_.as<std::byte>() + number * width * element_bytes(pass_.dtype),
                     .x_stride = row_width(),
                     .x_rows = pass_.rows.kept_rows(),
                     .y = input,
                     .y_stride = width,
                     .count = rows,
                     .n = width});
    pass_.apply_linear(pass_.activations.residual(), layer.per_layer_gate, gate);
    pass_.apply_gate({.activation = pass_.model.activation,
                      .gate_up = gate,
                      .up = input,
                      .y = gate,
                      .rows = rows,
                      .n = width});
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
