#include "engine/device/cuda/attention/hopper_kernel.cuh"

template qkscope::cuda::HopperHeads qkscope::cuda::hopper_heads<false, 96, 192, 96>();
