// Additions of attention and MLP outputs to the residual stream. The output projection accumulates
// straight into the residual (beta = 1) unless the update is normalised, observed or edited first;
// then it goes through a buffer.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/device/backend.h"
#include "engine/device/cuda/pass_context.h"

namespace qkscope::cuda {

struct UpdateTarget {
  std::int64_t begin = 0;    // first row of the update among the active rows
  std::int64_t running = 0;  // number of active rows
  DeviceNorm post_norm;      // norm of the update before the addition; (d_model) or none
  ResidualAddition addition = ResidualAddition::at_once;
};

class ResidualUpdates {
 public:
  explicit ResidualUpdates(const PassContext& pass) : pass_(pass) {}

  // Discards the deferred update of an earlier pass.
  void discard_deferred_update() { deferred_.reset(); }

  // Adds the product to the residual rows from target.begin on; product.y is ignored. If an
  // observer reads the update, the product is computed a second time for the observer, so that the
  // residual stays bit-identical to a run without an observer.
  void add_product(MatrixProduct product, const UpdateTarget& target) {
    const bool normalized = target.post_norm.weight != nullptr;
    const bool deferred = target.addition == ResidualAddition::deferred;
    product.factor = static_cast<float>(pass_.model.residual_scale);
    if (normalized || target.addition != ResidualAddition::at_once) {
      activations_.reserve_update(target.running);
      product.y = activations_.residual_update(target.begin);
      pass_.products.multiply(product);
    }
    if (deferred) deferred_ = DeferredUpdate{.product = product, .normalized = normalized};
    if (normalized)
      finish_update_rows(target.begin, product.rows, target.post_norm, !deferred);
    else if (!deferred)
      add_to_residual(product, target.begin);
  }

  // Like add_product(), for an update that is already in Activations::residual_update() and not yet
  // normalised.
  void add_computed_update(std::int64_t count, const UpdateTarget& target) {
    const bool deferred = target.addition == ResidualAddition::deferred;
    if (!deferred || target.post_norm.weight != nullptr)
      finish_update_rows(target.begin, count, target.post_norm, !deferred);
  }

  // Records that an observer edited the deferred update, so that the edited buffer is added.
  void mark_update_edited() {
    if (deferred_) deferred_->edited = true;
  }
  // Adds the deferred update to the residual stream. If no observer edited it, the result is
  // bit-identical to a run without an observer.
  void add_deferred_update(std::int64_t running) {
    if (deferred_ && !deferred_->edited && !deferred_->normalized)
      add_to_residual(deferred_->product, 0);
    else
      finish_update_rows(0, running, {}, true);
    deferred_.reset();
  }

 private:
  struct DeferredUpdate {
    MatrixProduct product;  // product of all rows that computed the update
    bool normalized = false;
    bool edited = false;
  };

  void add_to_residual(MatrixProduct product, std::int64_t begin) {
    product.y = activations_.residual(begin);
    product.accumulate = true;
    pass_.products.multiply(product);
  }

  // Normalises rows of the residual update in place if there is a norm, and adds them to the
  // residual stream if `add` is set.
  void finish_update_rows(std::int64_t begin, std::int64_t count, const DeviceNorm& post_norm,
                          bool add) {
    void* update = activations_.residual_update(begin);
    pass_.normalize({.x = update,
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

}  // namespace qkscope::cuda
