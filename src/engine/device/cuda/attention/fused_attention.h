// Attention with cuDNN's fused kernels, where it has one. fused_attention_absent.cpp stands in for
// it in a build without cuDNN.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "engine/ops/sequence.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// q, k and v lie side by side in rows of (n_heads + 2 n_kv_heads) * d_head elements, z in rows of
// n_heads * d_head.
struct FusedAttentionArguments {
  const void* q = nullptr;  // (rows, n_heads, d_head)
  const void* k = nullptr;  // (rows, n_kv_heads, d_head)
  const void* v = nullptr;  // (rows, n_kv_heads, d_head)
  void* z = nullptr;        // (rows, n_heads, d_head)
  std::int64_t window = 0;  // keys a query sees, itself included; 0: all before it
  // Multiplies q.k. cuDNN's plans hold the model's own scale: layers with another do not come to
  // it.
  float scale = 1;
};

class FusedAttention {
 public:
  // The library starts beside what the caller does next: it takes half a second.
  FusedAttention(const ModelConfig& model, DType dtype, int device, cudaStream_t stream);
  ~FusedAttention();
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  // The sequences of the pass; they lie one after another in the rows.
  void begin(std::span<const Sequence> sequences);

  // False where the library has no kernel for this; nothing was done then.
  bool attend(const FusedAttentionArguments& arguments);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace qkscope::cuda
