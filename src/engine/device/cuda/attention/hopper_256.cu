#include "engine/device/cuda/attention/hopper_kernel.cuh"

template qkscope::cuda::HopperKernelInstance
qkscope::cuda::hopper_kernel_instance<false, 256, 128, 64>();
