// What a run will need, before it runs.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "model/config.h"

namespace qkscope {

// Rows of the MLP whose wide activations exist at a time on CUDA.
constexpr std::int64_t kCudaMlpRows = 16384;

// Bytes of activations that a batch of this many rows needs on top of the weights.
std::int64_t activation_bytes(const ModelConfig& model, std::int64_t rows,
                              const BackendOptions& options = {});

// Bytes of the weights on the device, in the run's type on CUDA; the output embedding only where it
// is not the input embedding.
std::int64_t device_weight_bytes(const ModelConfig& model, DType dtype);

}  // namespace qkscope
