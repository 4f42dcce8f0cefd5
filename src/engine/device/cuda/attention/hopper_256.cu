#include "engine/device/cuda/attention/hopper_kernel.cuh"

template qkscope::cuda::HopperHeads qkscope::cuda::hopper_heads<false, 256, 128, 64>();
