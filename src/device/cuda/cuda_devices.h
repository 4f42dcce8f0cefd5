// The NVIDIA GPUs of this machine. Without nvcc none/cuda_backend.cpp stands in for this.
#pragma once

#include <cstdint>
#include <string>

#include "qkscope/tensor.h"

namespace qkscope::cuda {

int device_count();  // 0 without a driver

// The reason where there are none, for people.
std::string why_no_device();

// Why this build cannot use a GPU that is there: its generation is too old. "" where it can.
std::string why_unusable(int device);

std::int64_t free_memory(int device);  // bytes, whoever uses the others

// Copies where at least one of the two is on a GPU: contiguous, of one type and size. Waits for
// work that may still write `from`, and is done when it returns.
void copy_values(TensorView to, ConstTensorView from);

}  // namespace qkscope::cuda
