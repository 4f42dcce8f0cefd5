// Attention with cuDNN's fused kernels. fused_attention_absent.cpp is the stub for builds without
// cuDNN.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "engine/ops/attention.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// q, k and v are slices of rows of (n_heads + 2 n_kv_heads) * d_head elements; z has rows of
// n_heads * d_head.
struct FusedAttentionArguments {
  const void* q = nullptr;  // (rows, n_heads, d_head)
  const void* k = nullptr;  // (rows, n_kv_heads, d_head)
  const void* v = nullptr;  // (rows, n_kv_heads, d_head)
  void* z = nullptr;        // (rows, n_heads, d_head)
  std::int64_t window = 0;  // keys a query sees, itself included; 0: all before it
  // Multiplies q.k. cuDNN plans are built for the model's scale, so layers with a scale of their
  // own use another kernel.
  float scale = 1;
};

class FusedAttention {
 public:
  // Starts cuDNN on a background thread, because start-up takes half a second.
  FusedAttention(const ModelConfig& model, DType dtype, int device, cudaStream_t stream);
  ~FusedAttention();
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  // Declares the sequences of the pass; they occupy consecutive rows.
  void begin(std::span<const Sequence> sequences);

  // Returns false, without doing anything, if cuDNN has no kernel for the arguments.
  bool attend(const FusedAttentionArguments& arguments);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace qkscope::cuda
