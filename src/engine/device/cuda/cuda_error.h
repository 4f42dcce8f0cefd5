// Turns CUDA error codes into exceptions. No other file throws for a CUDA status.
#pragma once

#include <cuda_runtime.h>

namespace qkscope::cuda {

// Throws unless `status` is success. `operation` names the step for the message: "copy weights to
// the device".
void check(cudaError_t status, const char* operation);

// Call after a kernel launch.
inline void check_launch(const char* operation) {
  check(cudaGetLastError(), operation);
}

}  // namespace qkscope::cuda
