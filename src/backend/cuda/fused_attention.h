// Attention with cuDNN's fused kernels, where it has one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <cuda_runtime.h>

#include "core/dtype.h"
#include "ops/segment.h"

namespace qkscope::cuda {

struct FusedAttentionArguments {
  const void* q = nullptr;      // (rows, n_heads, d_head)
  const void* k = nullptr;      // (rows, n_kv_heads, d_head)
  const void* v = nullptr;      // (rows, n_kv_heads, d_head)
  void* z = nullptr;            // (rows, n_heads, d_head)
  std::int64_t row_stride = 0;  // elements from one row of q, k and v to the next
  std::int64_t z_stride = 0;
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  float scale = 1.0f;
  std::int64_t window = 0;  // keys a query sees, itself included; 0: all before it
  DType dtype = DType::bf16;
};

class FusedAttention {
 public:
  explicit FusedAttention(cudaStream_t stream);
  ~FusedAttention();
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  // The documents of the pass; they lie one after another in the rows.
  void begin(std::span<const Segment> segments);

  // False where the library has no kernel for this; nothing was done then.
  bool attend(const FusedAttentionArguments& arguments);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace qkscope::cuda
