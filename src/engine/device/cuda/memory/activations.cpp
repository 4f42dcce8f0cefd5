#include "engine/device/cuda/memory/activations.h"

#include <algorithm>

namespace qkscope::cuda {

Activations::Activations(const ModelConfig& model, DType dtype)
    : model_(model),
      dtype_(dtype),
      element_(static_cast<std::int64_t>(dtype_size(dtype))),
      q_width_(model.n_heads * model.d_head),
      kv_width_(model.n_kv_heads * model.d_head) {}

void Activations::begin(std::int64_t rows) {
  residual_.reserve(rows * model_.d_model * element_, "the residual stream");
  hidden_.reserve(rows * std::max(model_.d_model, q_width_) * element_, "activations");
  qkv_.reserve(rows * qkv_width() * element_, "queries, keys and values");
  residual_kept_ = queries_kept_ = has_layer_input_ = false;
}

void Activations::begin_kept(std::int64_t rows) {
  kept_residual_.reserve_roomy(rows * model_.d_model * element_, "kept rows");
  kept_queries_.reserve_roomy(rows * q_width_ * element_, "kept queries");
  residual_kept_ = queries_kept_ = true;
}

void* Activations::residual(std::int64_t row) const {
  return at(residual_kept_ ? kept_residual_ : residual_, row * model_.d_model);
}

void* Activations::normalized(std::int64_t row) const {
  return at(hidden_, row * model_.d_model);
}

void* Activations::layer_input() const {
  if (!has_layer_input_) return nullptr;
  return layer_input_kept_ ? kept_layer_input_.data() : layer_input_.data();
}

void* Activations::begin_kept_layer_input(std::int64_t rows) {
  layer_input_kept_ = true;
  return kept_layer_input_.reserve_roomy(rows * model_.d_model * element_, "kept rows");
}

void* Activations::begin_layer_input(std::int64_t rows) {
  has_layer_input_ = true;
  layer_input_kept_ = false;
  return layer_input_.reserve(rows * model_.d_model * element_, "the layer's input");
}

void* Activations::queries() const {
  return queries_kept_ ? kept_queries_.data() : qkv_.data();
}

void* Activations::update(std::int64_t row) const {
  return at(update_, row * model_.d_model);
}

void Activations::reserve_update(std::int64_t rows) {
  update_.reserve(rows * model_.d_model * element_, "updates");
}

void Activations::begin_mlp(std::int64_t rows) {
  mlp_rows_ = rows;
  is_gated_ = false;
}

void* Activations::reserve_gate_up() {
  return gate_up_.reserve(mlp_rows_ * mlp_width() * element_, "the MLP");
}

void* Activations::begin_gate() {
  is_gated_ = true;
  return gated_.reserve(mlp_rows_ * model_.d_mlp * element_, "the MLP");
}

void* Activations::begin_logits(std::int64_t rows) {
  return logits_.reserve(rows * model_.vocab_size * element_, "logits");
}

DeviceView Activations::view(Buffer buffer, std::int64_t rows) const {
  const auto& m = model_;
  const auto plain = [&](void* data, std::int64_t width, std::int64_t stride, std::int64_t count) {
    return DeviceView{data, stride, count, 1, width, false, dtype_};
  };
  const auto heads = [&](void* data, std::int64_t count, std::int64_t stride) {
    return DeviceView{data, stride, rows, count, m.d_head, true, dtype_};
  };
  switch (buffer) {
    case Buffer::residual:
      return plain(residual(), m.d_model, m.d_model, rows);
    case Buffer::normalized:
      return plain(normalized(), m.d_model, m.d_model, rows);
    case Buffer::q:
      return heads(qkv(), m.n_heads, qkv_width());
    case Buffer::k:
      return heads(k(), m.n_kv_heads, qkv_width());
    case Buffer::v:
      return heads(v(), m.n_kv_heads, qkv_width());
    case Buffer::z:
      return heads(z(), m.n_heads, q_width_);
    case Buffer::update:
      return plain(update(), m.d_model, m.d_model, rows);
    case Buffer::gate:
      if (is_gated_) return plain(gated(), m.d_mlp, m.d_mlp, mlp_rows_);
      return plain(gate_up(), m.d_mlp, mlp_width(), mlp_rows_);
    case Buffer::up:
      return plain(at(gate_up_, m.d_mlp), m.d_mlp, mlp_width(), mlp_rows_);
    case Buffer::router_logits:
    case Buffer::expert_weights:
    case Buffer::expert_indices:
      QKSCOPE_ASSERT(false);  // these buffers belong to expert_mixture.h
    case Buffer::logits:
      break;
  }
  return plain(logits_.data(), m.vocab_size, m.vocab_size, rows);
}

}  // namespace qkscope::cuda
