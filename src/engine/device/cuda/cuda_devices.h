// The NVIDIA GPUs of this machine, by their numbers.
#pragma once

#include <cstdint>
#include <string>

#include "qkscope/tensor.h"

namespace qkscope::cuda {

// Why this build cannot use the GPU: it has no code for its generation. "" where it can.
std::string why_unusable(int device);

bool is_hopper(int device);
int capability(int device);  // 90: compute capability 9.0
int multiprocessors(int device);

std::int64_t free_memory(int device);  // bytes, whoever uses the others

// Copies where at least one of the two is on a GPU: contiguous, of one type and size. Waits for
// work that may still write `from`, and is done when it returns.
void copy_values(TensorView to, ConstTensorView from);

}  // namespace qkscope::cuda
