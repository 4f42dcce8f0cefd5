// Entry points of the CUDA module (engine/device/cuda_module.h) and queries about GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "qkscope/tensor.h"

namespace qkscope {
class Backend;
struct BackendOptions;
class GpuMemoryBudget;
struct LoadedCheckpoint;
}  // namespace qkscope

namespace qkscope::cuda {

// Returns why this build cannot use the GPU (no code for its compute capability), or "".
std::string gpu_incompatibility_reason(int device);

std::int64_t free_memory_bytes(int device);  // bytes not allocated by any process

// Copies between host and GPU or between GPUs; both tensors must be contiguous and have the same
// type and size. Waits for pending work that may write to `from`; the copy is complete on return.
void copy_values(TensorView to, ConstTensorView from);

std::unique_ptr<Backend> make_backend(const LoadedCheckpoint& model, const BackendOptions& options,
                                      const GpuMemoryBudget& budget);

bool is_hopper(int device);
int compute_capability(int device);  // 90: compute capability 9.0
int multiprocessor_count(int device);

}  // namespace qkscope::cuda
