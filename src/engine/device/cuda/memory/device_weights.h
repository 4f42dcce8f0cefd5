// Model weights on the GPU: all layers resident, or two slots through which layers are streamed on
// demand.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/memory/weight_uploader.h"
#include "engine/device/cuda/pass_kernels.h"
#include "engine/device/cuda/products/products.h"
#include "engine/model/loaded_checkpoint.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// Weights of one layer. q, k and v are stacked into one matrix, and so are gate and up.
struct DeviceLayer {
  DeviceLinear qkv;                           // ((n_heads + 2 n_kv_heads) d_head, d_model)
  const float* sinks = nullptr;               // (n_heads) or null
  DeviceLinear o;                             // (d_model, n_heads d_head)
  DeviceLinear gate_up;                       // (2 d_mlp, d_model); without a gate (d_mlp, d_model)
  DeviceLinear down;                          // (d_model, d_mlp)
  DeviceLinear router;                        // (experts, d_model) or none
  std::vector<DeviceLinear> experts_gate_up;  // (experts) of (2 d_mlp, d_model), or empty
  std::vector<DeviceLinear> experts_down;     // (experts) of (d_model, d_mlp), or empty
  DeviceNorm input_norm;                      // (d_model) or none
  DeviceNorm q_norm;                          // (d_head), (n_heads d_head) or none
  DeviceNorm k_norm;                          // (d_head), (n_kv_heads d_head) or none
  DeviceNorm post_attention_norm;             // (d_model) or none
  DeviceNorm mlp_norm;                        // (d_model) or none
  DeviceNorm post_mlp_norm;                   // (d_model) or none
};

struct WeightOptions {
  DType dtype = DType::bf16;
  int device = 0;
  bool streamed = false;
  bool interleaves_gate_up = false;  // for multiply_gated()
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
  DeviceLinear output_head();  // uploaded on first use
  void wait();                 // blocks until all resident layers are uploaded

 private:
  struct LayerSlot {
    DeviceMemory memory;
    DeviceLayer layer;
    std::int64_t holds = -1;  // layer that is resident or being uploaded
    Event arrived;
    Event left;  // recorded after the last kernel that used the slot
    bool in_use = false;
  };

  std::int64_t layer_bytes(std::size_t layer) const;
  std::int64_t largest_layer_bytes() const;
  void upload(std::int64_t layer, LayerSlot& slot);
  std::int64_t next_layer(std::int64_t layer) const;    // the next layer that runs, wrapping around
  const LayerSlot& wait_for_layer(std::int64_t layer);  // blocks until its copies are enqueued
  void run_uploads();                                   // body of thread_
  void upload_layers();                                 // resident
  void stream_layers();

  const LoadedCheckpoint& model_;
  WeightOptions options_;
  Stream copies_;
  WeightUploader uploader_;
  DeviceMemory plain_gate_up_;  // staging before interleaving
  DeviceMemory embedding_;
  DeviceMemory positions_;
  DeviceMemory head_;
  DeviceMemory head_bias_;
  DeviceMemory final_norm_values_;
  DeviceNorm final_norm_;
  std::vector<LayerSlot> slots_;

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
