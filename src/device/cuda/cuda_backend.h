// The forward pass on an NVIDIA card.
#pragma once

#include <memory>

#include "device/backend.h"

namespace qkscope {

std::unique_ptr<Backend> make_cuda_backend(const LoadedCheckpoint& model,
                                           const BackendOptions& options);

// copy_values() where at least one of the two lies on a card.
void copy_with_card(TensorView to, ConstTensorView from);

}  // namespace qkscope
