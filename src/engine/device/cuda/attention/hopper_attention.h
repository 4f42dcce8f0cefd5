// Attention on Hopper with FlashInfer's kernel and a tile schedule of ours.
#pragma once

#include <cstdint>
#include <span>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "engine/device/cuda/attention/fused_attention.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/statistics/row_sums.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

class HopperAttention {
 public:
  HopperAttention(const ModelConfig& model, DType dtype, int device, cudaStream_t stream);

  // Returns whether a kernel exists for the GPU, the model's head size and the type.
  bool serves() const { return serves_; }

  // Declares the sequences of the pass; they occupy consecutive rows.
  void begin(std::span<const Sequence> sequences);

  void attend(const FusedAttentionArguments& arguments, const RowSums& row_sums = {});

 private:
  const ModelConfig& model_;
  DType dtype_;
  cudaStream_t stream_;
  int multiprocessors_ = 0;
  bool serves_ = false;
  std::int64_t rows_ = 0;
  std::int64_t longest_ = 0;
  int tile_count_ = 0;
  UploadBuffer tiles_;   // AttentionTile
  DeviceBlock counter_;  // int
};

}  // namespace qkscope::cuda
