// The one place where CUDA's errors become ours.
#pragma once

#include <cuda_runtime.h>

namespace qkscope::cuda {

// Throws unless `status` is success; the message names the operation and CUDA's reason.
void check(cudaError_t status, const char* operation);

}  // namespace qkscope::cuda
