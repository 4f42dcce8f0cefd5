// Attention on Hopper: FlashInfer's kernel, fed with tiles in an order of ours.
#pragma once

#include <cstdint>
#include <span>

#include <cuda_runtime.h>

#include "core/dtype.h"
#include "device/cuda/device_memory.h"
#include "device/cuda/fused_attention.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

class HopperAttention {
 public:
  HopperAttention(const ModelConfig& model, DType dtype, int device, cudaStream_t stream);

  // Whether this GPU, the model's heads and the type have a kernel.
  bool serves() const { return tile_rows_ > 0; }

  // The sequences of the pass; they lie one after another in the rows.
  void begin(std::span<const Sequence> sequences);

  // `lse` (rows, n_heads): log2 of the sum of exponentials of each row of scores; may be null.
  void attend(const FusedAttentionArguments& arguments, float* lse = nullptr);

 private:
  const ModelConfig& model_;
  DType dtype_;
  cudaStream_t stream_;
  int multiprocessors_ = 0;
  std::int64_t tile_rows_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t longest_ = 0;
  int tile_count_ = 0;
  DeviceBlock tiles_;    // AttentionTile
  DeviceBlock counter_;  // int
};

}  // namespace qkscope::cuda
