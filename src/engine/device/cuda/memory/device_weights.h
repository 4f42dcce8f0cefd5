// Model weights on the GPU: all layers resident, or two slots through which layers are streamed on
// demand.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/norm.h"
#include "engine/model/loaded_checkpoint.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope::cuda {

// Uploads weights from the memory-mapped file through two pinned buffers: one is filled while the
// other is being copied.
class Uploader {
 public:
  // Copies are enqueued on `stream` and converted to `dtype`.
  Uploader(DType dtype, cudaStream_t stream);

  void matrix(const WeightMatrix& matrix, void* destination);      // (out, in)
  void vector(std::span<const float> values, void* destination);   // a bias
  void floats(std::span<const float> values, float* destination);  // a norm, in float32
  void wait();  // blocks until all copies are complete

 private:
  struct Buffer {
    PinnedBlock host;
    DeviceBlock device;  // staging for values that need conversion
    Event done;
  };

  // One piece of an upload. fill(host) writes `count` values of type `from` into the pinned buffer;
  // land(device) is called with their address on the GPU, which is `target` if that is set.
  struct Piece {
    DType from;
    std::int64_t count;
    void* target = nullptr;
  };
  void send(const Piece& piece, const std::function<void(std::byte*)>& fill,
            const std::function<void(const void*)>& land);
  void copy(ConstTensorView source, void* destination, DType to, float scale);
  void copy_transposed(const WeightMatrix& matrix, void* destination);
  void copy_widened(const WeightMatrix& matrix, void* destination);

  DType dtype_;
  cudaStream_t stream_;
  Buffer buffers_[2];
  int next_ = 0;
};

struct DeviceLinear {
  const void* weight = nullptr;  // (out, in)
  const void* bias = nullptr;    // (out) or null
};

// Matrices of all experts at a constant stride, each aligned for cuBLASLt.
struct DeviceExperts {
  const std::byte* weight = nullptr;  // of the first, (out, in)
  const std::byte* bias = nullptr;    // of the first, (out), or null
  std::int64_t weight_stride = 0;     // bytes to the next
  std::int64_t bias_stride = 0;

  DeviceLinear of(std::int64_t expert) const {
    return {weight + expert * weight_stride,
            bias == nullptr ? nullptr : bias + expert * bias_stride};
  }
};

// Weights of one layer. q, k and v are stacked into one matrix, and so are gate and up.
struct DeviceLayer {
  DeviceLinear qkv;                // ((n_heads + 2 n_kv_heads) d_head, d_model)
  const float* sinks = nullptr;    // (n_heads) or null
  DeviceLinear o;                  // (d_model, n_heads d_head)
  DeviceLinear gate_up;            // (2 d_mlp, d_model); without a gate (d_mlp, d_model)
  DeviceLinear down;               // (d_model, d_mlp)
  DeviceLinear router;             // (experts, d_model) or none
  DeviceExperts experts_gate_up;   // (2 d_mlp, d_model) each, in place of gate_up
  DeviceExperts experts_down;      // (d_model, d_mlp) each, in place of down
  DeviceNorm input_norm;           // (d_model) or none
  DeviceNorm q_norm;               // (d_head), (n_heads d_head) or none
  DeviceNorm k_norm;               // (d_head), (n_kv_heads d_head) or none
  DeviceNorm post_attention_norm;  // (d_model) or none
  DeviceNorm mlp_norm;             // (d_model) or none
  DeviceNorm post_mlp_norm;        // (d_model) or none
};

struct WeightOptions {
  DType dtype = DType::bf16;
  int device = 0;
  bool streamed = false;
  bool interleaves_gate_up = false;  // see gated_product.h
};

class DeviceWeights {
 public:
  DeviceWeights(const LoadedCheckpoint& model, const WeightOptions& options);
  ~DeviceWeights();
  DeviceWeights(const DeviceWeights&) = delete;
  DeviceWeights& operator=(const DeviceWeights&) = delete;

  bool streamed() const { return options_.streamed; }

  // Makes `stream` wait for the layer's upload and returns its weights. Work on the previously
  // requested layer must already be enqueued on the same stream, because its slot may be
  // overwritten.
  const DeviceLayer& layer(std::int64_t layer, cudaStream_t stream);

  const void* embedding() const { return embedding_.data(); }
  const void* positions() const { return positions_.data(); }
  DeviceNorm final_norm() const { return final_norm_; }
  DeviceLinear head();  // uploaded on first use
  void wait();          // blocks until all resident layers are uploaded

 private:
  struct Slot {
    DeviceBlock memory;
    DeviceLayer layer;
    std::int64_t holds = -1;  // layer that is resident or being uploaded
    Event arrived;
    Event left;  // recorded after the last kernel that used the slot
    bool in_use = false;
  };

  std::int64_t layer_bytes(std::size_t layer) const;
  std::int64_t largest_layer_bytes() const;
  void upload(std::int64_t layer, Slot& slot);
  void upload_mlp(const LayerWeights& from, const DeviceLayer& to);
  void upload_gate_up(const LayerWeights& from, const DeviceLinear& to);
  void upload_experts(const LayerWeights& from, const DeviceLayer& to);
  std::int64_t after(std::int64_t layer) const;  // the next layer that runs, wrapping around
  const Slot& wait_for(std::int64_t layer);      // blocks until its copies are enqueued
  void upload_layers();
  void stream_layers();

  const LoadedCheckpoint& model_;
  WeightOptions options_;
  Stream copies_;
  Uploader uploader_;
  DeviceBlock plain_gate_up_;  // staging before interleaving
  DeviceBlock embedding_;
  DeviceBlock positions_;
  DeviceBlock head_;
  DeviceBlock head_bias_;
  DeviceBlock final_norm_values_;
  DeviceNorm final_norm_;
  std::vector<Slot> slots_;

  // State shared with the upload thread. Resident: the thread fills all slots in order while the
  // first pass already runs. Streaming: the thread refills free slots with the next layers.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t next_ = 0;  // layer that is uploaded next
  bool stopping_ = false;
  std::exception_ptr failed_;
  std::thread thread_;
};

}  // namespace qkscope::cuda
