// Activation buffers of a forward pass on the GPU, named as in the layer loop, and the KV cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/core/error.h"
#include "engine/device/backend.h"
#include "engine/device/cuda/memory/activation_copies.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/memory_plan.h"
#include "engine/device/recurrence_plan.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// Recurrent mixer states in a KV cache. Each slot (sequence) has two rows: a pass reads the current
// one and writes the other; commit() swaps them, so a pass that throws leaves the states unchanged.
class RecurrentStates {
 public:
  RecurrentStates(const ModelConfig& model, std::int64_t slots)
      : input_floats_((model.mixer.taps - 1) * model.mixer.channels()),
        uses_second_row_(as_index(slots)),
        layers_(model.layers.size()) {
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (model.layers[i].has_state())
        layers_[i].reserve(slots * cuda_mixer_state_bytes(model.mixer), "recurrent states");
  }

  // Last inputs of the convolution, two per slot: shape (2 * slots, taps - 1, channels).
  float* conv_states(std::int64_t layer) const { return layers_[as_index(layer)].as<float>(); }
  // States, two per slot: (2 * slots, value_heads, d_key, d_value); none for short convolutions.
  float* states(std::int64_t layer) const {
    return conv_states(layer) + 2 * std::ssize(uses_second_row_) * input_floats_;
  }
  std::int32_t current_row(std::int64_t slot) const {
    return static_cast<std::int32_t>(2 * slot) + (uses_second_row_[as_index(slot)] ? 1 : 0);
  }
  std::int32_t next_row(std::int64_t slot) const { return current_row(slot) ^ 1; }

  void commit(std::span<const Sequence> sequences) {
    for (const auto& sequence : sequences) uses_second_row_[as_index(sequence.slot)].flip();
  }

 private:
  std::int64_t input_floats_;
  std::vector<bool> uses_second_row_;  // (slots) the current row is the second one
  std::vector<DeviceMemory> layers_;   // inputs, then states
};

class Activations {
 public:
  Activations(const ModelConfig& model, DType dtype)
      : model_(model), dtype_(dtype), element_(element_bytes(dtype)) {}

  // Sizes of the current layer.
  std::int64_t d_head() const { return model_.d_head_of(layer_); }
  std::int64_t d_value() const { return model_.d_value_of(layer_); }
  std::int64_t n_kv_heads() const { return model_.n_kv_heads_of(layer_); }
  std::int64_t d_mlp() const { return model_.d_mlp_of(layer_); }
  std::int64_t q_width() const { return model_.n_heads * d_head(); }
  std::int64_t k_width() const { return n_kv_heads() * d_head(); }
  std::int64_t v_width() const { return n_kv_heads() * d_value(); }
  std::int64_t kv_width() const { return k_width() + v_width(); }
  std::int64_t z_width() const { return model_.n_heads * d_value(); }
  std::int64_t qkv_width() const { return q_width() + kv_width(); }

  // Allocates space for `rows` rows of the widest layer; every row is active at first.
  void begin_pass(std::int64_t rows) {
    std::int64_t qkv = 0;
    std::int64_t hidden = model_.d_model;
    for (const auto& layer : model_.layers) {
      begin_layer(layer);
      qkv = std::max(qkv, qkv_width());
      hidden = std::max({hidden, q_width(), z_width()});
    }
    residual_.reserve(rows * model_.d_model * element_, "the residual stream");
    hidden_.reserve(rows * hidden * element_, "activations");
    qkv_.reserve(rows * qkv * element_, "queries, keys and values");
    if (model_.has_attention_gate())
      attention_gate_.reserve(rows * q_width() * element_, "the attention gate");
    residual_kept_ = queries_kept_ = has_layer_input_ = false;
  }
  void begin_layer(const LayerConfig& layer) { layer_ = layer; }
  const LayerConfig& layer_config() const { return layer_; }  // the current layer
  // Switches residual(), queries() and attention_gate() to buffers for only the `rows` kept rows.
  void switch_to_kept_rows(std::int64_t rows) {
    kept_residual_.reserve_with_slack(rows * model_.d_model * element_, "kept rows");
    kept_queries_.reserve_with_slack(rows * q_width() * element_, "kept queries");
    if (model_.has_attention_gate())
      kept_attention_gate_.reserve_with_slack(rows * q_width() * element_, "kept queries");
    residual_kept_ = queries_kept_ = true;
  }
  // Switches queries() and attention_gate() from the kept rows back to the projection outputs.
  void discard_kept_queries() { queries_kept_ = false; }

  // Allocates a copy of the residual stream at the input of a layer, for MLPs that run in parallel
  // with attention (parallel residual), and a buffer for the kept rows of that copy.
  void* reserve_layer_input(std::int64_t rows) {
    has_layer_input_ = true;
    layer_input_kept_ = false;
    return layer_input_.reserve(rows * model_.d_model * element_, "the layer's input");
  }
  void* reserve_kept_layer_input(std::int64_t rows) {
    layer_input_kept_ = true;
    return kept_layer_input_.reserve_with_slack(rows * model_.d_model * element_, "kept rows");
  }

  // Device pointers to the buffers, or to the given row of a buffer.
  void* residual(std::int64_t row = 0) const {  // (rows, d_model)
    return element_address(residual_kept_ ? kept_residual_ : residual_, row * model_.d_model);
  }
  void* normalized(std::int64_t row = 0) const {  // (rows, d_model), until z overwrites it
    return element_address(hidden_, row * model_.d_model);
  }
  void* layer_input() const {  // (rows, d_model), null until reserve_layer_input
    if (!has_layer_input_) return nullptr;
    return layer_input_kept_ ? kept_layer_input_.data() : layer_input_.data();
  }
  void* attention_gate() const {  // (rows, n_heads * d_head) gate of z before the sigmoid
    return queries_kept_ ? kept_attention_gate_.data() : attention_gate_.data();
  }
  void* z() const { return hidden_.data(); }  // (rows, n_heads * d_value)
  void* qkv() const { return qkv_.data(); }   // (rows, qkv_width)
  void* k() const { return element_address(qkv_, q_width()); }
  void* v() const { return element_address(qkv_, q_width() + k_width()); }
  void* queries() const {  // (rows, n_heads * d_head) with query_stride
    return queries_kept_ ? kept_queries_.data() : qkv_.data();
  }
  std::int64_t query_stride() const { return queries_kept_ ? q_width() : qkv_width(); }
  void* residual_update(std::int64_t row = 0) const {  // (rows, d_model), once reserved
    return element_address(update_, row * model_.d_model);
  }
  void reserve_residual_update(std::int64_t rows) {
    update_.reserve(rows * model_.d_model * element_, "updates");
  }

  // Buffers of the MLP for one chunk of rows: gate and up, and their gated product.
  void begin_mlp_chunk(std::int64_t rows) {
    mlp_rows_ = rows;
    is_gated_ = false;
  }
  void* reserve_gate_up() {  // (rows, gate_up_width)
    return gate_up_.reserve(mlp_rows_ * gate_up_width() * element_, "the MLP");
  }
  void* reserve_gated_product() {  // (rows, d_mlp)
    is_gated_ = true;
    return gated_.reserve(mlp_rows_ * d_mlp() * element_, "the MLP");
  }
  std::int64_t mlp_chunk_rows() const { return mlp_rows_; }
  std::int64_t gate_up_width() const { return (model_.gated_mlp() ? 2 : 1) * d_mlp(); }
  void* gate_up() const { return gate_up_.data(); }
  void* gated_product() const { return gated_.data(); }

  void* reserve_logits(std::int64_t rows) {  // (rows, vocab_size)
    return logits_.reserve(rows * model_.vocab_size * element_, "logits");
  }

  // Returns the view of a buffer that observers see, with `rows` active rows.
  ActivationView view(ActivationBuffer buffer, std::int64_t rows) const {
    const auto& m = model_;
    const auto plain = [&](void* data, std::int64_t width, std::int64_t stride,
                           std::int64_t count) {
      return ActivationView{data, stride, count, 1, width, false, dtype_};
    };
    const auto heads = [&](void* data, std::int64_t count, std::int64_t width,
                           std::int64_t stride) {
      return ActivationView{data, stride, rows, count, width, true, dtype_};
    };
    switch (buffer) {
      case ActivationBuffer::residual:
        return plain(residual(), m.d_model, m.d_model, rows);
      case ActivationBuffer::normalized:
        return plain(normalized(), m.d_model, m.d_model, rows);
      case ActivationBuffer::q:
        return heads(qkv(), m.n_heads, d_head(), qkv_width());
      case ActivationBuffer::k:
        return heads(k(), n_kv_heads(), d_head(), qkv_width());
      case ActivationBuffer::v:
        return heads(v(), n_kv_heads(), d_value(), qkv_width());
      case ActivationBuffer::z:
        return heads(z(), m.n_heads, d_value(), z_width());
      case ActivationBuffer::update:
        return plain(residual_update(), m.d_model, m.d_model, rows);
      case ActivationBuffer::gate:
        if (is_gated_) return plain(gated_product(), d_mlp(), d_mlp(), mlp_rows_);
        return plain(gate_up(), d_mlp(), gate_up_width(), mlp_rows_);
      case ActivationBuffer::up:
        return plain(element_address(gate_up_, d_mlp()), d_mlp(), gate_up_width(), mlp_rows_);
      case ActivationBuffer::router_logits:
      case ActivationBuffer::expert_weights:
      case ActivationBuffer::expert_indices:
      case ActivationBuffer::kv_latent:
        QKSCOPE_ASSERT(false);  // these are in mixture_of_experts.h and layer_attention.h
      case ActivationBuffer::logits:
        break;
    }
    return plain(logits_.data(), m.vocab_size, m.vocab_size, rows);
  }

 private:
  void* element_address(const DeviceMemory& block, std::int64_t element) const {
    return block.as<std::byte>() + element * element_;
  }

  const ModelConfig& model_;
  DType dtype_;
  std::int64_t element_;  // bytes
  LayerConfig layer_;

  DeviceMemory residual_;
  DeviceMemory layer_input_;
  DeviceMemory hidden_;  // normalised rows, later z
  DeviceMemory qkv_;
  DeviceMemory gate_up_;
  DeviceMemory gated_;
  DeviceMemory update_;  // allocated only if it is observed, edited or normalised
  DeviceMemory logits_;
  DeviceMemory kept_residual_;
  DeviceMemory kept_queries_;
  DeviceMemory attention_gate_;
  DeviceMemory kept_attention_gate_;
  DeviceMemory kept_layer_input_;
  bool residual_kept_ = false;
  bool queries_kept_ = false;
  bool layer_input_kept_ = false;
  bool has_layer_input_ = false;
  std::int64_t mlp_rows_ = 0;
  bool is_gated_ = false;
};

class CudaKvCacheMemory : public KvCacheMemory {
 public:
  // The allocation is charged to `budget`, which must outlive the cache.
  CudaKvCacheMemory(const ModelConfig& model, DType dtype, GpuMemoryBudget& budget,
                    std::int64_t sequences, std::int64_t positions)
      : model_(model),
        dtype_(dtype),
        budget_(budget),
        positions_(positions),
        rows_(sequences * positions),
        layers_(model.layers.size()) {
    if (rows_ > INT32_MAX)
      reject("a cache of {} texts of {} tokens on CUDA: expected at most {} tokens together",
             sequences, positions, INT32_MAX);
    bytes_ = budget_.reserve_cache(sequences, positions);
    try {
      for (std::int64_t i = 0; i < model.n_layers; ++i) {
        if (!model.layer(i).has_attention() || model.layer(i).shares_kv()) continue;
        const auto bytes = rows_ * view(i, true).row_stride * element_bytes(dtype_);
        auto* const memory = layers_[as_index(i)].reserve(bytes, "cached keys and values");
        // Attention multiplies masked rows by 0, even unwritten ones, so no row may contain NaN.
        check(cudaMemset(memory, 0, as_index(bytes)), "clear the cache");
      }
      check(cudaStreamSynchronize(nullptr), "clear the cache");
      if (model.has_recurrence()) recurrent_.emplace(model, sequences);
    } catch (...) {
      budget_.release_cache(bytes_);
      throw;
    }
  }
  ~CudaKvCacheMemory() override { budget_.release_cache(bytes_); }
  CudaKvCacheMemory(const CudaKvCacheMemory&) = delete;
  CudaKvCacheMemory& operator=(const CudaKvCacheMemory&) = delete;

  // Returns the states of recurrent and convolution layers, or null if the model has none.
  RecurrentStates* recurrent_states() { return recurrent_ ? &*recurrent_ : nullptr; }

  // View of the keys or values of a layer, shape (sequences * positions, n_kv_heads, head width).
  ActivationView view(std::int64_t layer, bool keys) const {
    const auto& config = model_.layer(layer);
    const auto heads = model_.n_kv_heads_of(config);
    const auto d_head = model_.d_head_of(config), d_value = model_.d_value_of(config);
    auto* first = layers_[as_index(layer)].as<std::byte>();
    if (!keys) first += heads * d_head * element_bytes(dtype_);
    const auto width = keys ? d_head : d_value;
    return {first, heads * (d_head + d_value), rows_, heads, width, true, dtype_};
  }

  std::vector<std::int64_t> first_cache_rows(std::span<const Sequence> sequences) const {
    std::vector<std::int64_t> rows;
    for (const auto& sequence : sequences) rows.push_back(sequence.slot * positions_);
    return rows;
  }
  // Returns the rows of the KV cache into which keys and values of the batch are written.
  std::vector<std::int32_t> cache_rows_to_write(std::span<const Sequence> sequences) const {
    std::vector<std::int32_t> rows;
    for (const auto& sequence : sequences)
      for (auto position = sequence.past; position < sequence.end(); ++position)
        rows.push_back(static_cast<std::int32_t>(sequence.slot * positions_ + position));
    return rows;
  }

  // View of all cached positions of a sequence: keys or values of a layer.
  ActivationView sequence_view(std::int64_t layer, bool keys, const Sequence& sequence) const {
    auto part = view(layer, keys);
    const auto first = sequence.slot * positions_ * part.row_stride;
    part.data = static_cast<std::byte*>(part.data) + first * element_bytes(dtype_);
    part.rows = sequence.end();
    return part;
  }

 private:
  const ModelConfig& model_;
  DType dtype_;
  GpuMemoryBudget& budget_;
  std::int64_t positions_;
  std::int64_t rows_;
  std::int64_t bytes_ = 0;            // total over all layers
  std::vector<DeviceMemory> layers_;  // a row holds keys, then values
  std::optional<RecurrentStates> recurrent_;
};

}  // namespace qkscope::cuda
