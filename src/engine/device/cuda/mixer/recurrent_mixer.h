// Recurrent mixers on the GPU: projections, convolution, recurrence and gated norm of a layer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "engine/device/cuda/memory/activations.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/memory/device_weights.h"
#include "engine/device/cuda/pass_kernels.h"
#include "engine/device/cuda/products/products.h"
#include "qkscope/forward.h"
#include "qkscope/tensor.h"

namespace qkscope::cuda {

class RecurrentMixer {
 public:
  RecurrentMixer(const MixerConfig& config, DType dtype, MatrixMultiplier& products,
                 cudaStream_t stream)
      : config_(config), dtype_(dtype), products_(products), stream_(stream) {}

  void begin_pass(const Batch& batch) {
    batch_ = &batch;
    store_ = nullptr;
    rows_listed_ = has_output_ = false;
  }
  // Reads initial states of continued sequences from `store`, and writes the final states to it.
  void use_recurrent_states(RecurrentStates& store) { store_ = &store; }

  // Computes the mixer output of x (rows of the batch, d_model), and the states after `state_rows`.
  void compute_output(const void* x, const DeviceMixer& weights, std::int64_t layer,
                      std::span<const std::int64_t> state_rows) {
    if (!std::exchange(rows_listed_, true)) upload_sequences();
    auto a = make_arguments(weights, layer);
    products_.multiply({.x = x,
                        .linear = weights.projection,
                        .y = projected_.data(),
                        .rows = a.rows,
                        .y_stride = a.stride});
    if (config_.gate_rank() > 0) {
      a.low_rank_z = multiply_low_rank(x, weights.z_latent, weights.z, low_rank_z_);
      a.low_rank_a = multiply_low_rank(x, weights.a_latent, weights.a, low_rank_a_);
    }
    states_ = {};
    if (!state_rows.empty()) {
      states_ = Tensor(config_.state_shape(std::ssize(state_rows)));
      const std::vector<std::int32_t> rows(state_rows.begin(), state_rows.end());
      a.state_rows = state_rows_.upload(rows, "row numbers", stream_);
      a.state_row_count = std::ssize(state_rows);
      a.row_states = static_cast<float*>(row_states_.reserve(
          static_cast<std::int64_t>(states_.view().size_bytes()), "recurrent states"));
    }
    convolve_inputs(a, stream_);
    if (config_.kind != Mixer::short_convolution) {
      run_recurrence(a, stream_);
      normalize_and_gate_output(a, stream_);
    }
    has_output_ = true;
    is_kept_ = false;
    if (state_rows.empty()) return;
    check(cudaMemcpyAsync(states_.view().bytes(), a.row_states, states_.view().size_bytes(),
                          cudaMemcpyDeviceToHost, stream_),
          "copy recurrent states");
    check(cudaStreamSynchronize(stream_), "copy recurrent states");
  }
  // Returns the states after state_rows, of shape MixerConfig::state_shape(), on the host.
  ConstTensorView states() const { return states_; }

  // Keeps only `count` rows, listed in `rows`, of the mixer output that is yet to be projected.
  void keep_rows(const std::int32_t* rows, std::int64_t count) {
    if (!has_output_) return;
    const auto n = config_.value_width();
    copy_rows({.x = output_.data(),
               .x_stride = n,
               .x_rows = rows,
               .y = kept_output_.reserve_with_slack(count * n * element_bytes(dtype_), "kept rows"),
               .y_stride = n,
               .count = count,
               .n = n,
               .dtype = dtype_},
              stream_);
    is_kept_ = true;
  }
  // Returns the unprojected output (active rows, value_heads * d_value) and marks it as consumed.
  const void* consume_output() {
    has_output_ = false;
    return is_kept_ ? kept_output_.data() : output_.data();
  }

 private:
  // Uploads the lists of sequences and of recurrence chunks of the batch.
  void upload_sequences() {
    std::vector<MixerSequence> sequences;
    std::vector<RecurrenceChunk> chunks;
    std::vector<std::int32_t> row_sequences;
    const bool has_chunks = has_chunked_kernel(config_, dtype_) &&
                            max_shared_memory_bytes() >= recurrence_shared_bytes(config_.d_key);
    has_short_sequences_ = false;
    for (const auto& from : batch_->sequences) {
      row_sequences.insert(row_sequences.end(), as_index(from.length),
                           static_cast<std::int32_t>(sequences.size()));
      const bool is_short = !has_chunks || from.length < kCudaRecurrenceChunk;
      has_short_sequences_ |= is_short;
      sequences.push_back(
          {.begin = static_cast<std::int32_t>(from.begin),
           .length = static_cast<std::int32_t>(from.length),
           .past_row = store_ != nullptr && from.past > 0 ? store_->current_row(from.slot) : -1,
           .next_row = store_ != nullptr ? store_->next_row(from.slot) : -1,
           .first_chunk = is_short ? -1 : static_cast<std::int32_t>(chunks.size())});
      for (std::int64_t i = 0; !is_short && i < from.length; i += kCudaRecurrenceChunk)
        chunks.push_back(
            {.begin = static_cast<std::int32_t>(from.begin + i),
             .rows = static_cast<std::int32_t>(std::min(kCudaRecurrenceChunk, from.length - i))});
    }
    sequences_.upload(sequences, "row numbers", stream_);
    row_sequences_.upload(row_sequences, "row numbers", stream_);
    chunks_.upload(chunks, "row numbers", stream_);
  }

  // Computes linear(latent(x)), a low-rank projection of shape (rows, linear.out), in `memory`.
  const void* multiply_low_rank(const void* x, const DeviceLinear& latent,
                                const DeviceLinear& linear, DeviceMemory& memory) {
    const auto row_bytes = batch_->rows() * element_bytes(dtype_);
    void* const low =
        latent_.reserve(row_bytes * std::max(config_.d_key, config_.d_value), "mixers");
    void* const y = memory.reserve(row_bytes * linear.out, "mixers");
    products_.multiply({.x = x, .linear = latent, .y = low, .rows = batch_->rows()});
    products_.multiply({.x = low, .linear = linear, .y = y, .rows = batch_->rows()});
    return y;
  }

  // Allocates the buffers of a layer.
  MixerArguments make_arguments(const DeviceMixer& weights, std::int64_t layer) {
    const auto rows = batch_->rows();
    const auto stride = (weights.projection.out + 7) / 8 * 8;  // rows begin at 16 bytes
    const auto heads = rows * config_.value_heads;
    const auto pairs = chunks_.count() * config_.value_heads;
    const auto convolved = config_.kind == Mixer::short_convolution ? 0 : config_.channels();
    const auto reserve = [](DeviceMemory& memory, std::int64_t bytes) {
      return memory.reserve(bytes, "mixers");
    };
    auto* const rates = static_cast<float*>(reserve(rates_, 4 * (heads + rows * config_.decays())));
    const bool is_kimi = config_.kind == Mixer::kimi_delta;
    return {.config = config_,
            .dtype = dtype_,
            .rows = rows,
            .projected = reserve(projected_, rows * stride * element_bytes(dtype_)),
            .stride = stride,
            .vectors = weights.vectors,
            .sequences = sequences_.as<MixerSequence>(),
            .sequence_count = sequences_.count(),
            .row_sequences = row_sequences_.as<std::int32_t>(),
            .chunks = chunks_.as<RecurrenceChunk>(),
            .chunk_count = chunks_.count(),
            .has_short_sequences = has_short_sequences_,
            .qkv = reserve(qkv_, rows * convolved * element_bytes(dtype_)),
            .rates = rates,
            .log_decays = is_kimi ? nullptr : rates + heads,
            .channel_decays = is_kimi ? rates + heads : nullptr,
            .matrices = reserve(matrices_, pairs * cuda_recurrence_matrix_bytes(config_)),
            .factors = static_cast<float*>(reserve(factors_, pairs * kCudaChunkFactorBytes)),
            .output = reserve(output_, rows * config_.value_width() * element_bytes(dtype_)),
            .inputs = store_ == nullptr ? nullptr : store_->conv_states(layer),
            .states = store_ == nullptr ? nullptr : store_->states(layer)};
  }

  const MixerConfig& config_;
  DType dtype_;
  MatrixMultiplier& products_;
  cudaStream_t stream_;
  const Batch* batch_ = nullptr;
  RecurrentStates* store_ = nullptr;
  bool rows_listed_ = false;
  bool has_short_sequences_ = false;
  bool has_output_ = false;  // the output is not projected yet
  bool is_kept_ = false;     // the output is in kept_output_
  UploadBuffer sequences_;
  UploadBuffer row_sequences_;
  UploadBuffer chunks_;
  UploadBuffer state_rows_;
  DeviceMemory projected_;  // (rows, stride)
  DeviceMemory qkv_;        // (rows, channels)
  DeviceMemory latent_;     // (rows, d_key or d_value)
  DeviceMemory low_rank_z_;
  DeviceMemory low_rank_a_;
  DeviceMemory rates_;  // (rows, value_heads) rates, then (rows, decays) decays or their logarithms
  DeviceMemory matrices_;
  DeviceMemory factors_;
  DeviceMemory output_;  // (rows, value_heads * d_value)
  DeviceMemory kept_output_;
  DeviceMemory row_states_;
  Tensor states_;  // MixerConfig::state_shape(state_rows)
};

}  // namespace qkscope::cuda
