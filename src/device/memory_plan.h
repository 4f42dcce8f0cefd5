// What a run will need, before it runs.
#pragma once

#include <cstdint>

#include "device/backend.h"
#include "qkscope/model.h"

namespace qkscope {

// Rows of the MLP whose wide activations exist at a time. On the CPU they stay in its cache.
constexpr std::int64_t kCpuMlpRows = 512;
constexpr std::int64_t kCudaMlpRows = 8192;

// Bytes of activations that a batch of this many rows needs on top of the weights.
std::int64_t activation_bytes(const ModelConfig& model, std::int64_t rows,
                              const BackendOptions& options = {});

// Bytes that a run may take on its card: what is free but for a little that the driver and the
// libraries take late, or what the options allow where that is less. 0 on the CPU.
std::int64_t usable_memory(const BackendOptions& options);

// The most tokens, up to `wanted`, whose activations fit into `room` bytes.
std::int64_t tokens_that_fit(const ModelConfig& model, const BackendOptions& options,
                             std::int64_t wanted, std::int64_t room);

// Bytes of the weights on a card. An output embedding of its own is not among them: it comes when
// logits are asked for.
std::int64_t device_weight_bytes(const ModelConfig& model, DType dtype);

// The same where they stream: the embedding and two layers at a time.
std::int64_t streamed_weight_bytes(const ModelConfig& model, DType dtype);

}  // namespace qkscope
