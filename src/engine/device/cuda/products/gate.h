// MLP activations (gated and plain), elementwise clipping and soft capping, and the order of gate
// and up for the gated product.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// y (rows, n) = activation(gate) * up. Each row of gate_up (rows, 2 n) holds n values of gate, then
// n of up; or gate_up (rows, n) holds gate and `up` holds up. Without a gate: y =
// activation(gate_up), gate_up (rows, n).
struct GateArguments {
  Activation activation = Activation::silu;
  XieluWeights xielu = {};    // parameters of that activation
  ClampedSwiglu swiglu = {};  // parameters of that activation
  bool gated = true;
  const void* gate_up = nullptr;
  const void* up = nullptr;  // (rows, n), or null: stored in gate_up
  void* y = nullptr;         // may alias gate_up if that holds gate alone
  std::int64_t rows = 0;
  std::int64_t n = 0;
  DType dtype = DType::bf16;
};
void gate(const GateArguments& arguments, cudaStream_t stream);

// x = min(max(x, -limit), limit) for `count` values.
void clip(void* x, std::int64_t count, float limit, DType dtype, cudaStream_t stream);

// x = cap * tanh(x / cap) for `count` values.
void soft_cap(void* x, std::int64_t count, float cap, DType dtype, cudaStream_t stream);

// Interleaves n rows of gate and n rows of up: to (2 n, in) = permuted rows of from (2 n, in),
// 16-bit elements. The order gives each thread of gated_kernel.cu both values of eight neighbouring
// outputs.
void interleave_gate_up(const void* from, void* to, std::int64_t n, std::int64_t in,
                        cudaStream_t stream);

}  // namespace qkscope::cuda
