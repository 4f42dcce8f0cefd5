// The weights on the GPU: all of them, or two layers at a time that are uploaded as they are
// needed.
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

// Copies weights from the mapped file to the GPU through two pinned buffers: one fills while the
// other is copied.
class Uploader {
 public:
  // Everything arrives in stream order, in the type `dtype`.
  Uploader(DType dtype, cudaStream_t stream);

  void matrix(const WeightMatrix& matrix, void* destination);      // (out, in)
  void vector(std::span<const float> values, void* destination);   // a bias
  void floats(std::span<const float> values, float* destination);  // a norm, in float32
  void wait();                                                     // until all has arrived

 private:
  struct Buffer {
    PinnedBlock host;
    DeviceBlock device;  // where values of another type wait to be converted
    Event done;
  };

  // A piece on its way: fills the pinned buffer with fill(host), `count` values of `from`, and
  // calls land(device) where they have arrived, `target` itself where that is given.
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

// The matrices of all experts, each at an address that products like.
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

// q, k and v are one matrix, and so are gate and up.
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

  // For work on `stream` from now on; what used the layer asked for before must have been given to
  // the same stream.
  const DeviceLayer& layer(std::int64_t layer, cudaStream_t stream);

  const void* embedding() const { return embedding_.data(); }
  const void* positions() const { return positions_.data(); }
  DeviceNorm final_norm() const { return final_norm_; }
  DeviceLinear head();  // uploaded when it is asked for the first time
  void wait();          // until all layers are there, where they do not stream

 private:
  struct Slot {
    DeviceBlock memory;
    DeviceLayer layer;
    std::int64_t holds = -1;  // layer that is there or on its way
    Event arrived;
    Event left;  // the work that used it before is done
    bool in_use = false;
  };

  std::int64_t layer_bytes(std::size_t layer) const;
  std::int64_t largest_layer_bytes() const;
  void upload(std::int64_t layer, Slot& slot);
  void upload_mlp(const LayerWeights& from, const DeviceLayer& to);
  void upload_gate_up(const LayerWeights& from, const DeviceLinear& to);
  void upload_experts(const LayerWeights& from, const DeviceLayer& to);
  std::int64_t after(std::int64_t layer) const;  // the next that runs, going round
  const Slot& wait_for(std::int64_t layer);      // until its copies are on their way
  void upload_layers();
  void stream_layers();

  const LoadedCheckpoint& model_;
  WeightOptions options_;
  Stream copies_;
  Uploader uploader_;
  DeviceBlock plain_gate_up_;  // on their way to be interleaved
  DeviceBlock embedding_;
  DeviceBlock positions_;
  DeviceBlock head_;
  DeviceBlock head_bias_;
  DeviceBlock final_norm_values_;
  DeviceNorm final_norm_;
  std::vector<Slot> slots_;

  // The thread fills the slots: each with its layer, while the first pass already runs on those
  // that are there; or, streaming, free ones with the layers that come next.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t next_ = 0;  // layer that is filled in next
  bool stopping_ = false;
  std::exception_ptr failed_;
  std::thread thread_;
};

}  // namespace qkscope::cuda
