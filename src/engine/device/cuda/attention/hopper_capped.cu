#include "engine/device/cuda/attention/hopper_kernel.cuh"

template qkscope::cuda::HopperKernelInstance
qkscope::cuda::hopper_kernel_instance<true, 128, 128, 128>();
template qkscope::cuda::HopperKernelInstance
qkscope::cuda::hopper_kernel_instance<true, 256, 128, 64>();
