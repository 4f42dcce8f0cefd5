// Stub of hopper_kernel.cpp for builds without FlashInfer's headers or without code for Hopper.
#include "engine/device/cuda/attention/hopper_kernel.h"

namespace qkscope::cuda {

int hopper_tile_rows(std::int64_t, bool, std::int64_t) {
  return 0;
}

cudaError_t hopper_attention(const HopperArguments&, cudaStream_t) {
  return cudaErrorNotSupported;
}

}  // namespace qkscope::cuda
