// The MLP's gate and up product on Hopper with the gate in its last step: what is wide is never
// written.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// Whether there is a kernel for this GPU, model and type. The rows of gate and up must then be
// interleaved on the GPU (interleave_gate_up).
bool has_gated_product(const ModelConfig& model, DType dtype, int device);

// to (2 n, in) = from (2 n, in) of 16 bits, n rows of gate and n of up, in an order that gives one
// thread of the product both values of eight neighbours.
void interleave_gate_up(const void* from, void* to, std::int64_t n, std::int64_t in,
                        cudaStream_t stream);

struct GatedProduct {
  const void* x = nullptr;       // (rows, in)
  const void* weight = nullptr;  // (2 n, in) interleaved
  void* y = nullptr;             // (rows, n) silu(gate) * up, or (rows, 2 n) gate and up
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t n = 0;
  bool apart = false;  // gate and up as they are, to be shown or edited
  DType dtype = DType::bf16;
  int device = 0;
};
void multiply_gated(const GatedProduct& product, cudaStream_t stream);

}  // namespace qkscope::cuda
