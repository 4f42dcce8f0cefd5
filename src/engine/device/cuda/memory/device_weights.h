// Model weights on the GPU: all layers resident, or streamed through two slots on demand.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/mixer/mixer_kernels.h"
#include "engine/device/cuda/pass_kernels.h"
#include "engine/device/cuda/products/products.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/ops/linear.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope::cuda {

// Uploads weights from the mapped file: fills one pinned buffer while the other is copied.
class WeightUploader {
 public:
  // Copies are enqueued on `stream`; matrices are converted to `dtype`.
  WeightUploader(DType dtype, cudaStream_t stream) : dtype_(dtype), stream_(stream) {}

  // Uploads a matrix as (out, in), dense.
  void upload_matrix(const WeightMatrix& matrix, void* destination) {
    const bool interleaved = matrix.values.rank() == 2 && !matrix.values.is_contiguous() &&
                             !(matrix.transposed() && matrix.values.stride(0) == 1);
    if (matrix.is_mxfp4() || interleaved) return upload_via_float32(matrix, destination);
    if (matrix.transposed()) return upload_transposed(matrix, destination);
    if (!matrix.in_blocks()) return upload_values(matrix.values, destination, dtype_, matrix.scale);
    auto* to = static_cast<std::byte*>(destination);
    for (std::int64_t i = 0; i < matrix.values.dim(0); ++i) {
      const auto block = matrix_block(matrix, i);
      upload_values(block, to, dtype_, matrix.scale);
      to += block.size() * element_bytes(dtype_);
    }
  }

  void upload_vector(std::span<const float> values, void* destination, DType to) {
    upload_values({std::as_bytes(values).data(), DType::f32, {std::ssize(values)}}, destination, to,
                  1.0f);
  }

  void wait_for_uploads() {
    for (const auto& buffer : buffers_) buffer.done.wait();
  }

  cudaStream_t stream() const { return stream_; }

 private:
  static constexpr std::int64_t kChunk = 32 << 20;        // bytes of one pinned buffer
  static constexpr std::int64_t kBytesPerTask = 1 << 20;  // copied by one thread at a time
  static constexpr std::int64_t kRowsPerTask = 32;        // widened by one thread at a time

  struct StagingBuffer {
    PinnedMemory host;
    DeviceMemory device;  // staging for values that need conversion
    GpuEvent done;
  };

  // Matrix rows to upload: to `direct` in GPU memory or, if null, to a staging buffer on the GPU.
  struct RowUpload {
    std::int64_t rows;
    std::int64_t row_bytes;
    std::byte* direct = nullptr;
  };
  // fill(host, begin, count) writes rows [begin, begin + count) into a pinned buffer;
  // finish(device, begin, count) is called with their address on the GPU.
  void upload_rows(
      const RowUpload& source,
      const std::function<void(std::byte*, std::int64_t, std::int64_t)>& fill,
      const std::function<void(const void*, std::int64_t, std::int64_t)>& finish = nullptr) {
    const auto chunk = kChunk / source.row_bytes;
    for (std::int64_t begin = 0; begin < source.rows; begin += chunk) {
      const auto count = std::min(chunk, source.rows - begin);
      auto& buffer = buffers_[next_];
      next_ = 1 - next_;
      buffer.done.wait();
      auto* host = static_cast<std::byte*>(buffer.host.reserve(kChunk, "weights on their way"));
      fill(host, begin, count);
      void* landing = source.direct != nullptr
                          ? source.direct + begin * source.row_bytes
                          : buffer.device.reserve(kChunk, "weights that are converted");
      check(cudaMemcpyAsync(landing, host, as_index(count * source.row_bytes),
                            cudaMemcpyHostToDevice, stream_),
            "copy weights to the GPU");
      if (finish) finish(landing, begin, count);
      buffer.done.record(stream_);
    }
  }

  void upload_values(ConstTensorView source, void* destination, DType to, float scale) {
    QKSCOPE_ASSERT(source.is_contiguous());
    auto* const target = static_cast<std::byte*>(destination);
    const auto from_size = element_bytes(source.dtype());
    const auto to_size = element_bytes(to);
    const auto fill = [&](std::byte* host, std::int64_t begin, std::int64_t count) {
      copy_in_parallel(host, source.bytes() + begin * from_size, count * from_size);
    };
    if (source.dtype() == to && scale == 1.0f)
      return upload_rows({source.size(), from_size, target}, fill);
    upload_rows({source.size(), from_size}, fill,
                [&](const void* arrived, std::int64_t begin, std::int64_t count) {
                  convert_elements(arrived, source.dtype(), target + begin * to_size, to, count,
                                   scale, stream_);
                });
  }

  // Uploads a weight stored as (in, out), possibly as part of a wider matrix, as (out, in).
  void upload_transposed(const WeightMatrix& matrix, void* destination) {
    const auto& values = matrix.values;
    const auto size = element_bytes(values.dtype());
    const auto row_bytes = matrix.out() * size;
    if (row_bytes > kChunk)
      reject("a matrix of {} outputs is too wide to be transposed on its way to the GPU; use cpu",
             matrix.out());
    upload_rows(
        {matrix.in(), row_bytes},
        [&](std::byte* host, std::int64_t begin, std::int64_t count) {
          parallel_for_ranges(count, 1, [&](std::int64_t first, std::int64_t end) {
            for (auto row = first; row < end; ++row)
              std::memcpy(host + row * row_bytes,
                          values.bytes() + (begin + row) * values.stride(1) * size,
                          as_index(row_bytes));
          });
        },
        [&](const void* arrived, std::int64_t begin, std::int64_t count) {
          convert_and_transpose({.source = arrived,
                                 .from = values.dtype(),
                                 .rows = count,
                                 .columns = matrix.out(),
                                 .destination = destination,
                                 .to = dtype_,
                                 .begin = begin,
                                 .stride = matrix.in(),
                                 .scale = matrix.scale},
                                stream_);
        });
  }

  // Converts a matrix to float32 on the host before the upload: for MXFP4 matrices, and for
  // matrices whose rows or columns are interleaved with another matrix.
  void upload_via_float32(const WeightMatrix& matrix, void* destination) {
    const auto row_bytes = matrix.in() * kFloatBytes;
    const auto element = element_bytes(dtype_);
    if (row_bytes > kChunk)
      reject("a matrix of {} inputs is too wide to be widened on its way to the GPU; use cpu",
             matrix.in());
    upload_rows(
        {matrix.out(), row_bytes},
        [&](std::byte* host, std::int64_t begin, std::int64_t count) {
          parallel_for_ranges(count, kRowsPerTask, [&](std::int64_t first, std::int64_t end) {
            weights_to_float32(
                matrix,
                {.first = begin + first, .rows = end - first, .begin = 0, .depth = matrix.in()},
                reinterpret_cast<float*>(host) + first * matrix.in());
          });
        },
        [&](const void* arrived, std::int64_t begin, std::int64_t count) {
          auto* target = static_cast<std::byte*>(destination) + begin * matrix.in() * element;
          convert_elements(arrived, DType::f32, target, dtype_, count * matrix.in(), 1.0f, stream_);
        });
  }

  static void copy_in_parallel(std::byte* to, const std::byte* from, std::int64_t bytes) {
    parallel_for_ranges(bytes, kBytesPerTask, [=](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + begin, from + begin, as_index(end - begin));
    });
  }

  // Returns block number `block` of a matrix (blocks, rows, columns). In memory its blocks
  // alternate with blocks of other matrices, like q, k and v of each head in a fused weight.
  static ConstTensorView matrix_block(const WeightMatrix& matrix, std::int64_t block) {
    const auto& values = matrix.values;
    const auto bytes = block * values.stride(0) * element_bytes(values.dtype());
    return {values.bytes() + bytes, values.dtype(), {values.dim(1), values.dim(2)}};
  }

  DType dtype_;
  cudaStream_t stream_;
  StagingBuffer buffers_[2];
  int next_ = 0;
};

// Multi-head latent attention. DeviceLayer::qkv holds only W_Q: (n_heads d_head, q_rank or
// d_model).
struct DeviceLatentAttention {
  DeviceLinear kv;           // (kv_rank, d_model)
  DeviceLinear rotated_key;  // (rotated dimensions, d_model)
  DeviceLinear q;            // (q_rank, d_model) or none
  DeviceLinear k;            // (n_heads (d_head - rotated dimensions), kv_rank)
  DeviceLinear v;            // (n_heads d_value, kv_rank)
  DeviceNorm kv_norm;        // (kv_rank)
  DeviceNorm q_norm;         // (q_rank) or none
};

// Weights of a recurrent mixer. `projection` stacks the projections to q, k, v, z, b and a that the
// kind of mixer uses; low-rank projections to z and a are separate.
struct DeviceMixer {
  DeviceLinear projection;  // (channels and gates, d_model)
  DeviceLinear z_latent;    // (d_value, d_model) or none
  DeviceLinear z;           // (value_width, d_value) or none
  DeviceLinear a_latent;    // (d_key, d_model) or none
  DeviceLinear a;           // (decays, d_key) or none
  MixerVectorWeights vectors;
  DeviceLinear output;  // (d_model, value_width)
};

// Weights of one layer. q, k and v are stacked into one matrix, and so are gate and up.
struct DeviceLayer {
  // W_Q, W_K and W_V: ((n_heads + 2 n_kv_heads) d_head, d_model). W_V is absent if v = k; W_K and
  // W_V are absent if the layer reuses the keys and values of an earlier layer.
  DeviceLinear qkv;
  DeviceLatentAttention latent;
  const float* sinks = nullptr;               // (n_heads) or null
  DeviceLinear attention_gate;                // (n_heads d_head, d_model) or none
  DeviceLinear o;                             // (d_model, n_heads d_head)
  DeviceLinear gate_up;                       // (2 d_mlp, d_model); without a gate (d_mlp, d_model)
  DeviceLinear down;                          // (d_model, d_mlp), of the MLP or shared expert
  DeviceMixer mixer;                          // of layers with a state
  DeviceLinear shared_gate;                   // (1, d_model) gate of the shared expert, or none
  DeviceLinear router;                        // (experts, d_model) or none
  const float* selection_bias = nullptr;      // (experts) or null
  std::vector<DeviceLinear> experts_gate_up;  // (experts) of (2 d_mlp, d_model), or empty
  std::vector<DeviceLinear> experts_down;     // (experts) of (d_model, d_mlp), or empty
  DeviceNorm input_norm;                      // (d_model) or none
  DeviceNorm q_norm;                          // (d_head), (n_heads d_head) or none
  DeviceNorm k_norm;                          // (d_head), (n_kv_heads d_head) or none
  DeviceNorm v_norm;                          // (d_head) or none
  DeviceNorm post_attention_norm;             // (d_model) or none
  DeviceNorm mlp_norm;                        // (d_model) or none
  DeviceNorm post_mlp_norm;                   // (d_model) or none
  DeviceLinear per_layer_gate;                // (per_layer.width, d_model) or none
  DeviceLinear per_layer_output;              // (d_model, per_layer.width) or none
  DeviceNorm post_per_layer_norm;             // (d_model) or none
};

struct DeviceNonLayerWeights {
  DeviceLinear embedding;             // (embedding_rows, d_model)
  DeviceLinear positions;             // (max_positions, d_model) or none
  DeviceNorm final_norm;              // (d_model)
  DeviceLinear per_layer_embedding;   // (per_layer.vocab_size, n_layers * per_layer.width) or none
  DeviceLinear per_layer_projection;  // (n_layers * per_layer.width, d_model) or none
  DeviceNorm per_layer_norm;          // (per_layer.width) or none
};

struct DeviceWeightOptions {
  DType dtype = DType::bf16;
  int device = 0;
  bool streamed = false;
  bool interleaves_gate_up = false;  // for run_gated_gemm()
  bool interleaves_experts = false;  // for run_gated_gemm() with groups
};

class DeviceWeights {
 public:
  DeviceWeights(const LoadedCheckpoint& model, const DeviceWeightOptions& options);
  ~DeviceWeights();
  DeviceWeights(const DeviceWeights&) = delete;
  DeviceWeights& operator=(const DeviceWeights&) = delete;

  bool is_streamed() const { return options_.streamed; }

  // Makes `stream` wait for the layer's upload and returns its weights. Work on the previously
  // requested layer must already be enqueued on the same stream.
  const DeviceLayer& acquire_layer(std::int64_t layer, cudaStream_t stream);

  const DeviceNonLayerWeights& non_layer() const { return non_layer_; }
  DeviceLinear output_head();  // uploaded on first use
  void wait_for_uploads();     // blocks until all resident layers are uploaded

 private:
  struct LayerSlot {
    DeviceMemory memory;
    DeviceLayer layer;
    std::int64_t holds = -1;  // layer that is resident or being uploaded
    GpuEvent arrived;
    GpuEvent left;  // recorded after the last kernel that used the slot
    bool in_use = false;
  };

  std::int64_t layer_bytes(std::size_t layer) const;
  std::int64_t largest_layer_bytes() const;
  void upload_layer(std::int64_t layer, LayerSlot& slot);
  std::int64_t next_layer(std::int64_t layer) const;    // the next layer that runs, wrapping around
  const LayerSlot& wait_for_layer(std::int64_t layer);  // blocks until its copies are enqueued
  void run_uploads();                                   // body of thread_
  void upload_layers();                                 // resident
  void stream_layers();

  const LoadedCheckpoint& model_;
  DeviceWeightOptions options_;
  GpuStream copies_;
  WeightUploader uploader_;
  DeviceMemory plain_;  // staging before interleaving
  DeviceMemory non_layer_memory_;
  DeviceNonLayerWeights non_layer_;
  DeviceMemory head_memory_;
  DeviceLinear head_;
  std::vector<LayerSlot> slots_;

  // State shared with the upload thread. Resident: the thread fills all slots in order,
  // concurrently with the first pass. Streaming: it refills free slots with the next layers.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t next_ = 0;  // layer that is uploaded next
  bool stopping_ = false;
  std::exception_ptr failed_;
  std::thread thread_;
};

}  // namespace qkscope::cuda
