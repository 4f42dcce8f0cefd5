// The forward pass on an NVIDIA GPU.
#pragma once

#include <memory>

#include "engine/device/backend.h"
#include "engine/device/memory_plan.h"

namespace qkscope::cuda {

std::unique_ptr<Backend> make_backend(const LoadedCheckpoint& model, const BackendOptions& options,
                                      const DeviceBudget& budget);

}  // namespace qkscope::cuda
