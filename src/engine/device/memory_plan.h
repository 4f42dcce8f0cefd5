// How much memory a run needs, before it runs, and what of it may be taken on a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/device/backend.h"
#include "qkscope/model.h"

namespace qkscope {

// Rows of the MLP whose wide activations exist at a time. On the CPU they stay in its cache.
constexpr std::int64_t kCpuMlpRows = 512;
constexpr std::int64_t kCudaMlpRows = 8192;
// In a mixture of experts on the CPU: enough for every expert to have some 128 of them, so that its
// weights are worth reading.
std::int64_t cpu_expert_rows(const ModelConfig& model);
// On a GPU: so many that what is wide fits. An expert's rows are filled up to whole units.
constexpr std::int64_t kExpertRowUnit = 64;
inline std::int64_t cuda_expert_rows(const ModelConfig& model) {
  constexpr std::int64_t kMostSlots = 32768;
  return std::clamp<std::int64_t>(kMostSlots / model.experts.per_token, 1, kCudaMlpRows);
}

// Bytes of activations that a batch of this many rows needs on top of the weights.
std::int64_t activation_bytes(const ModelConfig& model, std::int64_t rows,
                              const BackendOptions& options = {});

// Bytes that statistics over every token take on top of that on the device that computes them.
struct StatisticsMemory {
  std::int64_t buckets = 16;
  bool moments = true;     // group A
  bool attention = false;  // group B
  bool all_keys = false;   // group C
};
std::int64_t statistics_bytes(const ModelConfig& model, std::int64_t rows,
                              const StatisticsMemory& statistics,
                              const BackendOptions& options = {});

// Bytes that the keys and values of one token take in a cache, in all layers.
std::int64_t cache_token_bytes(const ModelConfig& model, DType dtype);

// Refuses a cache of keys and values that is larger than the host's memory.
void check_host_cache(const ModelConfig& model, std::int64_t sequences, std::int64_t positions);

// Bytes that a run may take on its GPU: what is free but for a little that the driver and the
// libraries take late, or what the options allow where that is less. 0 on the CPU.
std::int64_t usable_memory(const BackendOptions& options);

// The most tokens, up to `wanted`, whose activations fit into `room` bytes.
std::int64_t tokens_that_fit(const ModelConfig& model, const BackendOptions& options,
                             std::int64_t wanted, std::int64_t room);

// Bytes of the weights on a GPU. An output embedding of its own is not among them: it is uploaded
// when logits are asked for.
std::int64_t device_weight_bytes(const ModelConfig& model, DType dtype);

// The same where they stream: the embedding and two layers at a time.
std::int64_t streamed_weight_bytes(const ModelConfig& model, DType dtype);

// What a backend may take of its GPU's memory, decided before anything is allocated.
class DeviceBudget {
 public:
  // Refuses a model that does not fit even when its weights stream.
  DeviceBudget(const ModelConfig& model, const BackendOptions& options);

  bool streams() const { return streams_; }
  // Refuses a batch whose activations do not fit beside the weights and the caches; says how long
  // one may be.
  void check_rows(std::int64_t rows) const;
  // Takes the bytes of a cache of keys and values, until they are given back. Refuses one that does
  // not fit beside the weights, other caches and the activations of a step.
  std::int64_t take_cache(std::int64_t sequences, std::int64_t positions);
  void give_back(std::int64_t bytes) { caches_ -= bytes; }

 private:
  std::int64_t weight_bytes(bool streamed) const;

  const ModelConfig& model_;
  BackendOptions options_;
  std::int64_t limit_;       // bytes
  std::int64_t caches_ = 0;  // bytes that caches of keys and values have taken
  bool streams_ = false;
};

}  // namespace qkscope
