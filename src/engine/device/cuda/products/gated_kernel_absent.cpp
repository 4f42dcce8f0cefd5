// Stub of gated_kernel.cu for builds without CUTLASS' headers or without code for Hopper.
#include "engine/device/cuda/products/gated_kernel.h"

namespace qkscope::cuda {

bool gated_kernel_is_built() {
  return false;
}

cudaError_t gated_product(const GatedArguments&, cudaStream_t) {
  return cudaErrorNotSupported;
}

}  // namespace qkscope::cuda
