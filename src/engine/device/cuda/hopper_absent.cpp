// Stubs of hopper_kernel.cpp and gated_kernel.cu for builds without the headers of FlashInfer and
// CUTLASS or without code for Hopper GPUs.
#include "engine/device/cuda/hopper_kernels.h"

namespace qkscope::cuda {

int hopper_tile_rows(const HopperHeadShape&, std::int64_t) {
  return 0;
}

cudaError_t hopper_attention(const HopperAttentionArguments&, cudaStream_t) {
  return cudaErrorNotSupported;
}

bool is_gated_kernel_built() {
  return false;
}

cudaError_t launch_gated_kernel(const GatedProductArguments&, cudaStream_t) {
  return cudaErrorNotSupported;
}

}  // namespace qkscope::cuda
