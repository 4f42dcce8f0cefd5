// Attention with cuDNN's fused kernels. cudnn_attention_absent.cpp is the stub for builds without
// cuDNN.
#pragma once

#include <memory>
#include <span>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "engine/device/cuda/attention/attention.h"
#include "engine/ops/attention.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

class CudnnAttention {
 public:
  // Starts cuDNN on a background thread, because start-up takes half a second.
  CudnnAttention(const ModelConfig& model, DType dtype, int device, cudaStream_t stream);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // Declares the sequences of the pass; they occupy consecutive rows.
  void begin(std::span<const Sequence> sequences);

  // Returns false, without doing anything, if cuDNN has no kernel for the arguments.
  bool attend(const CausalAttentionArguments& heads);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace qkscope::cuda
