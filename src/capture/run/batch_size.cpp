#include <algorithm>

#include "base/core/error.h"
#include "base/core/text.h"
#include "capture/run/capture_plan.h"
#include "engine/device/backend.h"
#include "engine/device/memory_plan.h"
#include "engine/model/loaded_checkpoint.h"

namespace qkscope {
namespace {

std::string bytes(std::int64_t count) {
  return format_bytes(static_cast<std::uint64_t>(count));
}

std::string number(std::int64_t count) {
  return format_count(static_cast<std::uint64_t>(count));
}

// Beyond any real memory, but small enough that byte counts do not overflow 64 bits.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

std::int64_t least_tokens(const BatchNeeds& needs) {
  return needs.max_length > kMostTokens / needs.documents ? kMostTokens
                                                          : needs.documents * needs.max_length;
}

// Size of the weights in the checkpoint, which the CPU uses from the mapped file. Block-scaled FP8
// weights are expanded to float32.
std::int64_t stored_weight_bytes(const ModelConfig& model) {
  const bool wide = model.stored_dtype == "float32" || !model.fp8_block.empty();
  return parameter_count(model) * (wide ? 4 : 2);
}

[[noreturn]] void refuse(const MemoryPlan& plan, const BackendOptions& options,
                         const BatchNeeds& needs, std::int64_t needed, std::int64_t fit) {
  const auto length = fit / needs.documents;
  bad_input(
      "device {}: {} document{} of {} tokens need{} {} of activations beside {} of weights (two "
      "layers at a time), and {} may be taken; {}",
      device_name(options.device), number(needs.documents), needs.documents == 1 ? "" : "s",
      number(needs.max_length), needs.documents == 1 ? "s" : "", bytes(needed),
      bytes(plan.held_weights), bytes(plan.available),
      length > 0 ? fmt::format("tokenizer.max_length={} would fit", length)
                 : "not even one token fits");
}

}  // namespace

MemoryPlan plan_memory(const ModelConfig& model, const BackendOptions& options,
                       const BatchNeeds& needs, std::int64_t available) {
  MemoryPlan plan;
  const auto least = least_tokens(needs);
  if (options.device.kind == Device::Kind::cpu) {
    plan.weights = plan.held_weights = stored_weight_bytes(model);
    plan.batch_tokens = least;
  } else {
    plan.available = available;
    plan.weights = plan.held_weights = device_weight_bytes(model, options.dtype);
    const auto most = [&](std::int64_t by_default) {
      const auto asked = needs.tokens > 0 ? std::min(needs.tokens, kMostTokens) : by_default;
      const auto wanted = std::max(least, asked);
      if (available == 0) return wanted;
      return tokens_that_fit(model, options, wanted, available - plan.held_weights);
    };
    plan.batch_tokens = most(kBatchTokens);
    if (plan.batch_tokens < least) {
      plan.held_weights = streamed_weight_bytes(model, options.dtype);
      plan.batch_tokens = most(kStreamingBatchTokens);
    }
    if (plan.batch_tokens < least)
      refuse(plan, options, needs, activation_bytes(model, least, options), plan.batch_tokens);
  }
  plan.activations = activation_bytes(model, plan.batch_tokens, options);
  return plan;
}

}  // namespace qkscope
