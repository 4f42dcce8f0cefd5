// Gate/up product on Hopper with SwiGLU in the epilogue: the (rows, 2 d_mlp) intermediate is never
// written to memory.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// Returns whether a kernel exists for this GPU, model and type. If so, the rows of gate and up must
// be interleaved on the GPU (interleave_gate_up).
bool has_gated_product(const ModelConfig& model, DType dtype, int device);

// Interleaves n rows of gate and n rows of up: to (2 n, in) = permuted rows of from (2 n, in),
// 16-bit elements. The order gives each thread of the product both values of eight neighbouring
// outputs.
void interleave_gate_up(const void* from, void* to, std::int64_t n, std::int64_t in,
                        cudaStream_t stream);

struct GatedProduct {
  const void* x = nullptr;       // (rows, in)
  const void* weight = nullptr;  // (2 n, in) interleaved
  void* y = nullptr;             // (rows, n) silu(gate) * up, or (rows, 2 n) gate and up
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t n = 0;
  bool apart = false;  // write gate and up separately, for observers
  DType dtype = DType::bf16;
  int device = 0;
};
void multiply_gated(const GatedProduct& product, cudaStream_t stream);

}  // namespace qkscope::cuda
