// The gate of the MLP and the cap on logits.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/dtype.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// y (rows, n) = activation(gate) * up, where each row of gate_up (rows, 2 n) holds n of gate, then
// n of up.
struct GateArguments {
  Activation activation = Activation::silu;
  const void* gate_up = nullptr;
  void* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t n = 0;
  DType dtype = DType::bf16;
};
void gate(const GateArguments& arguments, cudaStream_t stream);

// x = cap * tanh(x / cap), of `count` values
void soft_cap(void* x, std::int64_t count, float cap, DType dtype, cudaStream_t stream);

}  // namespace qkscope::cuda
