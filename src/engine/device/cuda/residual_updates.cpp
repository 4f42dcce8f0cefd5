#include "engine/device/cuda/residual_updates.h"

namespace qkscope::cuda {

void ResidualUpdates::add_product(Product product, const UpdateTarget& target) {
  const bool normalized = target.post_norm.weight != nullptr;
  const bool deferred = target.addition == Addition::deferred;
  product.y_stride = model_.d_model;
  product.factor = static_cast<float>(model_.residual_scale);
  if (normalized || target.addition != Addition::at_once) {
    activations_.reserve_update(target.running);
    product.y = activations_.update(target.begin);
    products_.multiply(product);
  }
  if (deferred) deferred_ = Deferred{.product = product, .normalized = normalized};
  if (normalized)
    finish_rows(target.begin, product.rows, target.post_norm, !deferred);
  else if (!deferred)
    add_directly(product, target.begin);
}

void ResidualUpdates::add_made(std::int64_t count, const UpdateTarget& target) {
  const bool deferred = target.addition == Addition::deferred;
  if (!deferred || target.post_norm.weight != nullptr)
    finish_rows(target.begin, count, target.post_norm, !deferred);
}

void ResidualUpdates::mark_edited() {
  if (deferred_) deferred_->edited = true;
}

void ResidualUpdates::add_deferred(std::int64_t running) {
  if (deferred_ && !deferred_->edited && !deferred_->normalized)
    add_directly(deferred_->product, 0);
  else
    finish_rows(0, running, {}, true);
  deferred_.reset();
}

void ResidualUpdates::add_directly(Product product, std::int64_t begin) {
  product.y = activations_.residual(begin);
  product.accumulate = true;
  products_.multiply(product);
}

// Normalises rows of the update in place if there is a norm, and adds them to the residual if `add`
// is set.
void ResidualUpdates::finish_rows(std::int64_t begin, std::int64_t count,
                                  const DeviceNorm& post_norm, bool add) {
  void* update = activations_.update(begin);
  norm({.x = update,
        .norm = post_norm,
        .kind = model_.norm,
        .y = post_norm.weight != nullptr ? update : nullptr,
        .residual = add ? activations_.residual(begin) : nullptr,
        .rows = count,
        .n = model_.d_model,
        .eps = static_cast<float>(model_.norm_eps),
        .dtype = dtype_},
       stream_);
}

}  // namespace qkscope::cuda
