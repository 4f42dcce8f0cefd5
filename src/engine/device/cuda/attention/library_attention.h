// Attention with library kernels: FlashInfer's on Hopper, with a custom tile schedule, and cuDNN's
// fused kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "engine/device/cuda/attention/attention.h"
#include "engine/device/cuda/hopper_kernels.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/ops/attention.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// A range of query rows of one head: one work item of the persistent kernel.
struct AttentionTile {
  std::int32_t begin;   // first row of the sequence
  std::int32_t length;  // rows of the sequence
  std::int32_t tile;    // tile index within the sequence
  std::int32_t head;    // query head
};

struct TileShape {
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  std::int64_t rows = 0;  // query rows of a tile
};

// Lists every tile once. Key heads whose keys and values fit into L2 together are scheduled
// together, query heads that share a key head are adjacent, and long tiles precede short ones, so
// that all multiprocessors finish at about the same time.
std::vector<AttentionTile> schedule_attention_tiles(std::span<const Sequence> sequences,
                                                    const TileShape& shape);

class HopperAttention {
 public:
  HopperAttention(const ModelConfig& model, DType dtype, int device, cudaStream_t stream);

  // Returns whether a kernel exists for the GPU, the model's head size and the type.
  bool has_kernel() const { return serves_; }

  // Sets the sequences of the pass. Each sequence occupies consecutive rows.
  void set_sequences(std::span<const Sequence> sequences);

  // Causal attention with a.window. A row holds q, k and v one after another, and z is dense.
  void attend(const AttentionArguments& a);

 private:
  const ModelConfig& model_;
  DType dtype_;
  cudaStream_t stream_;
  int multiprocessors_ = 0;
  HopperHeadShape head_;
  bool serves_ = false;
  std::int64_t rows_ = 0;
  std::int64_t longest_ = 0;
  int tile_count_ = 0;
  UploadBuffer tiles_;    // AttentionTile
  DeviceMemory counter_;  // int
};

// cudnn_attention_absent.cpp is the stub for builds without cuDNN.
class CudnnAttention {
 public:
  // Starts cuDNN on a background thread, because start-up takes half a second.
  CudnnAttention(const ModelConfig& model, DType dtype, int device, cudaStream_t stream);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // Sets the sequences of the pass. Each sequence occupies consecutive rows.
  void set_sequences(std::span<const Sequence> sequences);

  // Returns false, without doing anything, if cuDNN has no kernel for the arguments. Plans are
  // built for the scale of the model, and no row sums are computed.
  bool attend(const AttentionArguments& a);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace qkscope::cuda
