// The forward pass on an NVIDIA card.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace qkscope {

std::unique_ptr<Backend> make_cuda_backend(const Model& model, const BackendOptions& options);

}  // namespace qkscope
