// Comparison and timing of candidate algorithms on the GPU.
#pragma once

#include <cstdint>
#include <functional>

#include <cuda_runtime.h>

namespace qkscope::cuda {

// Compares two device buffers and waits for the result. Only whole 4-byte words are compared.
bool same_bytes(const void* a, const void* b, std::int64_t bytes, cudaStream_t stream);

// Returns whether this build contains code for the current GPU, by launching the comparison kernel.
bool has_code_for_gpu();

// Returns the shortest wall-clock time of `repeats` runs.
double seconds_of(const std::function<void()>& run, int repeats, cudaStream_t stream);

}  // namespace qkscope::cuda
