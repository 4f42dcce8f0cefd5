// How many texts run together, and what they take on the device.
#pragma once

#include <cstdint>

#include "engine/device/backend.h"
#include "qkscope/capture.h"

namespace qkscope {

// Which consecutive examples run together.
struct Packing {
  std::int64_t examples = 1;  // this many in any case
  std::int64_t tokens = 0;    // and more while they have at most so many tokens; 0: no more

  // Whether a batch of `count` examples and `held` tokens takes one more of `length` tokens.
  bool takes(std::int64_t count, std::int64_t held, std::int64_t length) const {
    constexpr std::int64_t kMostPacked = 1024;  // texts of a word or none fill no batch by tokens
    if (count < examples) return true;
    return tokens > 0 && count < kMostPacked && held + length <= tokens;
  }
};

// Tokens that run together on a GPU: enough that its products run at full speed.
constexpr std::int64_t kBatchTokens = 32768;
// The same where each batch copies the weights to the GPU again.
constexpr std::int64_t kStreamingBatchTokens = 2 * kBatchTokens;

struct BatchNeeds {
  std::int64_t documents = 1;   // that must run together
  std::int64_t max_length = 0;  // tokens of a document
  std::int64_t tokens = 0;      // wanted in a batch where there is room; 0: the above
};

// From the configuration alone. Weights stream where they do not fit beside the activations. A run
// that does not fit even so is bad input that says what would.
MemoryPlan plan_memory(const ModelConfig& model, const BackendOptions& options,
                       const BatchNeeds& needs, std::int64_t available);

}  // namespace qkscope
