#include "engine/device/cuda/attention/hopper_kernel.cuh"

template qkscope::cuda::HopperInstance qkscope::cuda::hopper_instance<true, 128, 128, 128>();
template qkscope::cuda::HopperInstance qkscope::cuda::hopper_instance<true, 256, 128, 64>();
