// The forward pass on an NVIDIA GPU. Without nvcc none/cuda_backend.cpp stands in for this.
#pragma once

#include <memory>

#include "device/backend.h"

namespace qkscope {

std::unique_ptr<Backend> make_cuda_backend(const LoadedCheckpoint& model,
                                           const BackendOptions& options);

}  // namespace qkscope
