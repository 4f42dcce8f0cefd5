// Queries about the NVIDIA GPUs of this machine, by device number.
#pragma once

#include <cstdint>
#include <string>

#include "qkscope/tensor.h"

namespace qkscope::cuda {

// Returns why this build cannot use the GPU (no code for its compute capability), or "".
std::string why_unusable(int device);

bool is_hopper(int device);
int capability(int device);  // 90: compute capability 9.0
int multiprocessors(int device);

std::int64_t free_memory(int device);  // bytes, after what all processes hold

// Copies between host and GPU or between GPUs; both tensors are contiguous, of one type and size.
// Waits for pending work that may write `from`; the copy is complete on return.
void copy_values(TensorView to, ConstTensorView from);

}  // namespace qkscope::cuda
