// CUTLASS kernel of the gate/up product on Hopper with SwiGLU in the epilogue: the (rows, 2 d_mlp)
// intermediate is never written to memory. Builds without CUTLASS' headers use hopper_absent.cpp.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace qkscope::cuda {

struct GatedArguments {
  const void* x = nullptr;       // (rows, in)
  const void* weight = nullptr;  // (2 n, in) interleaved by interleave_gate_up()
  void* y = nullptr;             // (rows, n) silu(gate) * up, or (rows, 2 n) gate and up
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t n = 0;
  bool apart = false;  // write gate and up separately, for observers
  bool bf16 = true;    // else float16
  int device = 0;
  int multiprocessors = 0;  // of the device
};

bool gated_kernel_is_built();
cudaError_t launch_gated_kernel(const GatedArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
