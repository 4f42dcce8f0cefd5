// Stubs for hopper_kernel.cpp and gated_kernel.cu in builds without the FlashInfer and CUTLASS
// headers or without code for Hopper GPUs.
#include "engine/device/cuda/hopper_kernels.h"

namespace qkscope::cuda {

int hopper_tile_rows(const HopperHeadShape&, std::int64_t) {
  return 0;
}

cudaError_t launch_hopper_attention(const HopperAttentionArguments&, cudaStream_t) {
  return cudaErrorNotSupported;
}

bool is_gated_gemm_built() {
  return false;
}

cudaError_t launch_gated_gemm(const GatedGemmArguments&, cudaStream_t) {
  return cudaErrorNotSupported;
}

}  // namespace qkscope::cuda
