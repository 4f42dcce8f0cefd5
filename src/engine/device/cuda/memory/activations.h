// Activation buffers of a forward pass on the GPU, named as in the layer loop.
#pragma once

#include <cstdint>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/activation_copies.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

class Activations {
 public:
  Activations(const ModelConfig& model, DType dtype);

  std::int64_t q_width() const { return q_width_; }    // n_heads * d_head
  std::int64_t kv_width() const { return kv_width_; }  // n_kv_heads * d_head
  std::int64_t qkv_width() const { return q_width_ + 2 * kv_width_; }

  // Allocates space for `rows` rows; every row is active at first.
  void begin(std::int64_t rows);
  // From now on residual and queries hold only `rows` kept rows, in buffers of their own.
  void begin_kept(std::int64_t rows);
  // The next projection writes its queries into qkv.
  void begin_projection() { queries_kept_ = false; }

  // Allocates the residual as it enters a layer, for MLPs that read it (parallel residual), and the
  // buffer for kept rows of it.
  void* begin_layer_input(std::int64_t rows);
  void* begin_kept_layer_input(std::int64_t rows);

  // Pointers to the given row of each buffer.
  void* residual(std::int64_t row = 0) const;    // (rows, d_model)
  void* normalized(std::int64_t row = 0) const;  // (rows, d_model), until z overwrites it
  void* layer_input() const;                     // (rows, d_model), null until begin_layer_input
  void* z() const { return hidden_.data(); }     // (rows, n_heads * d_head)
  void* qkv() const { return qkv_.data(); }      // (rows, qkv_width)
  void* k() const { return at(qkv_, q_width_); }
  void* v() const { return at(qkv_, q_width_ + kv_width_); }
  void* queries() const;  // (rows, n_heads * d_head) with query_stride
  std::int64_t query_stride() const { return queries_kept_ ? q_width_ : qkv_width(); }
  void* update(std::int64_t row = 0) const;  // (rows, d_model), after reserve_update
  void reserve_update(std::int64_t rows);

  // Buffers of one chunk of MLP rows, and of its gated product.
  void begin_mlp(std::int64_t rows);
  void* reserve_gate_up();  // (rows, mlp_width)
  void* begin_gate();       // (rows, d_mlp)
  std::int64_t mlp_rows() const { return mlp_rows_; }
  std::int64_t mlp_width() const { return (model_.gated_mlp() ? 2 : 1) * model_.d_mlp; }
  void* gate_up() const { return gate_up_.data(); }
  void* gated() const { return gated_.data(); }

  void* begin_logits(std::int64_t rows);  // (rows, vocab_size)

  // Returns the shape and strides under which observers see `rows` running rows of a buffer.
  DeviceView view(Buffer buffer, std::int64_t rows) const;

 private:
  void* at(const DeviceBlock& block, std::int64_t element) const {
    return block.as<std::byte>() + element * element_;
  }

  const ModelConfig& model_;
  DType dtype_;
  std::int64_t element_;  // bytes
  std::int64_t q_width_;
  std::int64_t kv_width_;

  DeviceBlock residual_;
  DeviceBlock layer_input_;
  DeviceBlock hidden_;  // normalised rows, later z
  DeviceBlock qkv_;
  DeviceBlock gate_up_;
  DeviceBlock gated_;
  DeviceBlock update_;  // allocated only if it is observed, edited or normalised
  DeviceBlock logits_;
  DeviceBlock kept_residual_;
  DeviceBlock kept_queries_;
  DeviceBlock kept_layer_input_;
  bool residual_kept_ = false;
  bool queries_kept_ = false;
  bool layer_input_kept_ = false;
  bool has_layer_input_ = false;
  std::int64_t mlp_rows_ = 0;
  bool is_gated_ = false;
};

}  // namespace qkscope::cuda
