// The activation of the MLP with its gate, and what is done to single values: caps and clips.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// y (rows, n) = activation(gate) * up, where each row of gate_up (rows, 2 n) holds n of gate, then
// n of up, or gate_up holds gate alone, (rows, n), and up lies in `up`; or without a gate
// activation(gate_up), (rows, n).
struct GateArguments {
  Activation activation = Activation::silu;
  XieluWeights xielu = {};    // where that is the activation
  ClampedSwiglu swiglu = {};  // where that is the activation
  bool gated = true;
  const void* gate_up = nullptr;
  const void* up = nullptr;  // (rows, n) or null: it is in gate_up
  void* y = nullptr;         // may be gate_up where that is gate alone
  std::int64_t rows = 0;
  std::int64_t n = 0;
  DType dtype = DType::bf16;
};
void gate(const GateArguments& arguments, cudaStream_t stream);

// x = min(max(x, -limit), limit), of `count` values
void clip(void* x, std::int64_t count, float limit, DType dtype, cudaStream_t stream);

// x = cap * tanh(x / cap), of `count` values
void soft_cap(void* x, std::int64_t count, float cap, DType dtype, cudaStream_t stream);

}  // namespace qkscope::cuda
