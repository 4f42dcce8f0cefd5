// The activations of a pass on the GPU, under the names of the layer loop.
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

  // Room for this many rows, all of which run.
  void begin(std::int64_t rows);
  // From here on the residual and the queries are those of `rows` kept rows, in memory of their
  // own.
  void begin_kept(std::int64_t rows);
  // The queries lie in qkv again.
  void begin_projection() { queries_kept_ = false; }

  // Room for the residual as it enters a layer, where the MLP reads that; and for kept rows of it.
  void* begin_layer_input(std::int64_t rows);
  void* begin_kept_layer_input(std::int64_t rows);

  // Each from the given row on.
  void* residual(std::int64_t row = 0) const;    // (rows, d_model)
  void* normalized(std::int64_t row = 0) const;  // (rows, d_model), until z takes its place
  void* layer_input() const;                     // (rows, d_model), null until begin_layer_input
  void* z() const { return hidden_.data(); }     // (rows, n_heads * d_head)
  void* qkv() const { return qkv_.data(); }      // (rows, qkv_width)
  void* k() const { return at(qkv_, q_width_); }
  void* v() const { return at(qkv_, q_width_ + kv_width_); }
  void* queries() const;  // (rows, n_heads * d_head) with query_stride
  std::int64_t query_stride() const { return queries_kept_ ? q_width_ : qkv_width(); }
  void* update(std::int64_t row = 0) const;  // (rows, d_model), after reserve_update
  void reserve_update(std::int64_t rows);

  // A chunk of the MLP, and what the gate makes of it.
  void begin_mlp(std::int64_t rows);
  void* reserve_gate_up();  // (rows, mlp_width)
  void* begin_gate();       // (rows, d_mlp)
  std::int64_t mlp_rows() const { return mlp_rows_; }
  std::int64_t mlp_width() const { return (model_.gated_mlp() ? 2 : 1) * model_.d_mlp; }
  void* gate_up() const { return gate_up_.data(); }
  void* gated() const { return gated_.data(); }

  void* begin_logits(std::int64_t rows);  // (rows, vocab_size)

  // What a hook sees of `rows` running rows.
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
  DeviceBlock hidden_;  // normalised rows, then z
  DeviceBlock qkv_;
  DeviceBlock gate_up_;
  DeviceBlock gated_;
  DeviceBlock update_;  // only where it is shown, edited or normalised
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
