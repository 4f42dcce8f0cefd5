#include "engine/device/cuda/attention/hopper_kernel.cuh"

template qkscope::cuda::HopperHeads qkscope::cuda::hopper_heads<true, 128, 128, 128>();
template qkscope::cuda::HopperHeads qkscope::cuda::hopper_heads<true, 256, 128, 64>();
