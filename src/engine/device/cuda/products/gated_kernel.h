// Kernel of gated_product.h, compiled only where CUTLASS' headers are available.
#pragma once

#include <cuda_runtime.h>

namespace qkscope::cuda {

struct GatedArguments {
  const void* x = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
  int rows = 0;
  int in = 0;
  int n = 0;
  bool apart = false;
  bool bf16 = true;  // else float16
  int device = 0;
  int multiprocessors = 0;
};

bool gated_kernel_is_built();
cudaError_t gated_product(const GatedArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
