#include "engine/device/cuda/attention/hopper_kernel.cuh"

template qkscope::cuda::HopperHeads qkscope::cuda::hopper_heads<false, 128, 128, 128>();
