// Memory requirements of a run, and the memory budget of a GPU.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/device/backend.h"
#include "engine/device/recurrence_plan.h"
#include "qkscope/model.h"

namespace qkscope {

// Rows per MLP chunk on each device, to bound activation memory. A CPU chunk fits into the cache.
constexpr std::int64_t kCpuMlpRows = 512;
constexpr std::int64_t kCudaMlpRows = 8192;
// Rows per MLP chunk with experts on the CPU: about 128 per expert, to amortise weight reads.
std::int64_t cpu_expert_chunk_rows(const ModelConfig& model);
// Rows per MLP chunk with experts on CUDA. Chunks are large, because each expert receives few of
// the rows, and the last GEMM tile of an expert is rarely full.
inline std::int64_t cuda_expert_chunk_rows(const ModelConfig& model) {
  constexpr std::int64_t kMostSlots = 262144;
  return std::clamp<std::int64_t>(kMostSlots / model.experts.per_token, 1, 4 * kCudaMlpRows);
}
// Each expert's GEMMs round the row count up to a multiple of this, to limit the distinct shapes.
constexpr std::int64_t kExpertRowUnit = 64;

// Returns the size in bytes of the activations of a batch of `rows` tokens, without the weights.
std::int64_t activation_bytes(const ModelConfig& model, std::int64_t rows,
                              const BackendOptions& options = {});

// Statistics that a run computes over all tokens; the memory plan includes their buffers.
struct EnabledStatistics {
  std::int64_t buckets = 16;
  bool moments = true;     // moments of q, k and v
  bool attention = false;  // near-key statistics
  bool all_keys = false;   // all-keys statistics
};
std::int64_t statistics_bytes(const ModelConfig& model, std::int64_t rows,
                              const EnabledStatistics& statistics,
                              const BackendOptions& options = {});

// Returns the size in bytes of one token in the KV cache, summed over all layers.
std::int64_t kv_bytes_per_token(const ModelConfig& model, DType dtype);

// Returns the bytes of the float32 states of all recurrent mixers, per sequence of a KV cache.
std::int64_t recurrent_state_bytes(const ModelConfig& model);

// Throws a bad-input error if a KV cache exceeds the physical memory of the host.
void check_cache_fits_host(const ModelConfig& model, std::int64_t sequences,
                           std::int64_t positions);

// Returns the bytes of GPU memory that a run may use: the free memory minus a reserve for driver
// and library allocations, or options.device_memory if that is less. Returns 0 for the CPU.
std::int64_t usable_memory_bytes(const BackendOptions& options);

// Returns the largest number of tokens, at most `wanted`, whose activations fit into `room` bytes.
std::int64_t max_batch_tokens(const ModelConfig& model, const BackendOptions& options,
                              std::int64_t wanted, std::int64_t room);

// Returns the size in bytes of the weights on a GPU, excluding an untied output embedding.
std::int64_t device_weight_bytes(const ModelConfig& model, DType dtype);

// Returns the GPU bytes that streamed weights need: embedding, two layers, interleaving buffer.
std::int64_t streamed_weight_bytes(const ModelConfig& model, DType dtype);

// Memory budget of a CUDA backend, decided before any allocation.
class GpuMemoryBudget {
 public:
  // Throws a bad-input error if the model does not fit even with streamed weights.
  GpuMemoryBudget(const ModelConfig& model, const BackendOptions& options);

  bool needs_weight_streaming() const { return streams_; }
  // Throws a bad-input error, which names the largest batch that fits, if `rows` rows do not fit.
  void check_rows_fit(std::int64_t rows) const;
  // Reserves the bytes of a KV cache until release_cache(). Throws a bad-input error if the cache
  // does not fit in addition to the weights, other caches and the activations of one step.
  std::int64_t reserve_cache(std::int64_t sequences, std::int64_t positions);
  void release_cache(std::int64_t bytes) { *caches_ -= bytes; }

 private:
  std::int64_t weight_bytes(bool streamed) const;

  const ModelConfig& model_;
  BackendOptions options_;
  std::int64_t limit_;  // bytes
  // Bytes reserved by KV caches. Atomic: several threads may create caches for one model.
  std::shared_ptr<std::atomic<std::int64_t>> caches_ =
      std::make_shared<std::atomic<std::int64_t>>(0);
  bool streams_ = false;
};

}  // namespace qkscope
