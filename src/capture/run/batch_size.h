// Decides how many texts run in one batch and plans their memory on the device.
#pragma once

#include <cstdint>

#include "engine/device/backend.h"
#include "qkscope/capture.h"

namespace qkscope {

// Rule for packing consecutive examples into one batch.
struct Packing {
  std::int64_t examples = 1;  // minimal number of examples
  std::int64_t tokens = 0;    // beyond the minimum, pack up to this many tokens; 0: do not pack

  // Whether a batch of `count` examples with `held` tokens accepts one more of `length` tokens.
  bool takes(std::int64_t count, std::int64_t held, std::int64_t length) const {
    constexpr std::int64_t kMostPacked = 1024;  // limit for very short or empty texts
    if (count < examples) return true;
    return tokens > 0 && count < kMostPacked && held + length <= tokens;
  }
};

// Default batch size on a GPU: large enough for matrix products at full speed.
constexpr std::int64_t kBatchTokens = 32768;
// Default batch size when every batch copies the weights to the GPU again.
constexpr std::int64_t kStreamingBatchTokens = 2 * kBatchTokens;

struct BatchNeeds {
  std::int64_t documents = 1;   // documents that must run in one batch
  std::int64_t max_length = 0;  // tokens per document
  std::int64_t tokens = 0;      // wanted tokens per batch; 0 for the defaults above
};

// Plans memory from the model's configuration. Weights are streamed if they do not fit beside the
// activations. Throws bad input that proposes a fitting max_length if the run still does not fit.
MemoryPlan plan_memory(const ModelConfig& model, const BackendOptions& options,
                       const BatchNeeds& needs, std::int64_t available);

}  // namespace qkscope
