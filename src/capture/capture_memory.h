// What a run takes on its device, from the configuration alone.
#pragma once

#include <cstdint>

#include "device/backend.h"

namespace qkscope {

// Tokens that run together on a card: enough that its products run at full speed.
constexpr std::int64_t kBatchTokens = 32768;
// The same where each batch brings the weights over anew.
constexpr std::int64_t kStreamingBatchTokens = 2 * kBatchTokens;

struct BatchNeeds {
  std::int64_t documents = 1;   // that must run together
  std::int64_t max_length = 0;  // tokens of a document
  std::int64_t tokens = 0;      // wanted in a batch where there is room; 0: the above
};

struct MemoryPlan {
  std::int64_t available = 0;     // bytes that may be taken on the device; 0: not known
  std::int64_t weights = 0;       // bytes
  std::int64_t held_weights = 0;  // of those, on the device at a time
  std::int64_t batch_tokens = 0;  // of the largest batch
  std::int64_t activations = 0;   // bytes, of that batch

  bool streams() const { return held_weights < weights; }
};

// Weights stream where they do not fit beside the activations. A run that does not fit even so is
// bad input that says what would.
MemoryPlan plan_memory(const ModelConfig& model, const BackendOptions& options,
                       const BatchNeeds& needs, std::int64_t available);

}  // namespace qkscope
