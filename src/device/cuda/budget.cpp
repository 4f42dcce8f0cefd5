#include "device/cuda/budget.h"

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "device/memory_plan.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kShortestBatch = 4096;  // where the run does not say

std::string text(std::int64_t bytes) {
  return format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)));
}

}  // namespace

Budget::Budget(const ModelConfig& model, const BackendOptions& options)
    : model_(model), options_(options), limit_(usable_memory(options)) {
  const auto rows = options.longest_batch > 0 ? options.longest_batch : kShortestBatch;
  const auto activations = activation_bytes(model, rows, options);
  streams_ = options.stream_weights || weight_bytes(false) + activations > limit_;
  log::debug("device memory: {} of weights{}, {} of activations at {} tokens, {} may be used",
             text(weight_bytes(streams_)), streams_ ? " (streamed)" : "", text(activations), rows,
             text(limit_));
  check_rows(rows);
}

std::int64_t Budget::weight_bytes(bool streamed) const {
  return streamed ? streamed_weight_bytes(model_, options_.dtype)
                  : device_weight_bytes(model_, options_.dtype);
}

void Budget::check_rows(std::int64_t rows) const {
  const auto weights = weight_bytes(streams_);
  const auto activations = activation_bytes(model_, rows, options_);
  if (weights + activations <= limit_) return;
  const auto longest = tokens_that_fit(model_, options_, rows, limit_ - weights);
  bad_input(
      "device memory: {} tokens at a time need {} for weights{} and {} for activations, {} may be "
      "used; {}",
      rows, text(weights), streams_ ? " (streamed)" : "", text(activations), text(limit_),
      longest > 0 ? fmt::format("up to {} tokens fit: take fewer documents at a time or a smaller "
                                "tokenizer.max_length",
                                longest)
                  : std::string("not even one token fits: use a larger card or device cpu"));
}

}  // namespace qkscope::cuda
