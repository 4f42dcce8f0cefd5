// Comparing and timing on the GPU, to choose between algorithms.
#pragma once

#include <cstdint>
#include <functional>

#include <cuda_runtime.h>

namespace qkscope::cuda {

// Waits for the answer. `bytes` is a multiple of 4 or the rest is left out.
bool same_bytes(const void* a, const void* b, std::int64_t bytes, cudaStream_t stream);

// Whether this build has code for the GPU that is in use: asked of the kernel above.
bool has_code_for_gpu();

// The shortest of `repeats` runs.
double seconds_of(const std::function<void()>& run, int repeats, cudaStream_t stream);

}  // namespace qkscope::cuda
