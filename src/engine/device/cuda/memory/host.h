// Function table of the library that loaded this module (engine/device/cuda_module.h).
#pragma once

#include "engine/device/cuda_module.h"

namespace qkscope::cuda {

void set_host(const CudaHost* table);

}  // namespace qkscope::cuda
