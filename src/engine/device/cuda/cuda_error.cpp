#include "engine/device/cuda/cuda_error.h"

#include "base/core/error.h"

namespace qkscope::cuda {

void check(cudaError_t status, const char* operation) {
  if (status == cudaSuccess) return;
  failure("CUDA: {} failed: {} ({})", operation, cudaGetErrorString(status),
          cudaGetErrorName(status));
}

}  // namespace qkscope::cuda
