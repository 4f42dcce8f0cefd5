// The one place where CUDA's errors become ours.
#pragma once

#include <cuda_runtime.h>

namespace qkscope::cuda {

// `operation` is what was being done, for people: "copy weights to the device".
void check(cudaError_t status, const char* operation);

// After a kernel launch.
inline void check_launch(const char* operation) {
  check(cudaGetLastError(), operation);
}

}  // namespace qkscope::cuda
