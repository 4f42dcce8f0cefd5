#include "engine/device/cuda/attention/hopper_kernel.cuh"

template qkscope::cuda::HopperKernelInstance
qkscope::cuda::hopper_kernel_instance<false, 192, 128, 128, 128>();
