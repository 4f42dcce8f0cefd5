#include "engine/device/backend.h"

#include <algorithm>
#include <atomic>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/numbers.h"
#include "engine/device/cpu/cpu_backend.h"
#include "engine/device/cuda_loader.h"
#include "engine/device/device.h"

namespace qkscope {

std::unique_ptr<Backend> make_backend(const LoadedCheckpoint& model,
                                      const BackendOptions& options) {
  if (options.device.kind == Device::Kind::cpu) return std::make_unique<CpuBackend>(model);
  if (const auto why = gpu_unavailable_reason(options.device.index); !why.empty())
    bad_input("device {}: {}; use cpu", device_name(options.device), why);
  return cuda_module().module->make_backend(model, options, DeviceBudget(model.config, options));
}

void Batch::add(std::span<const std::int32_t> sequence) {
  translate_exceptions([&] {
    sequences.push_back({rows(), std::ssize(sequence)});
    ids.insert(ids.end(), sequence.begin(), sequence.end());
  });
}

void Batch::add_positions(std::int64_t length) {
  translate_exceptions([&] {
    if (length < 1) bad_input("a sequence of {} positions; at least one is needed", length);
    sequences.push_back({rows(), length});
    ids.resize(ids.size() + as_index(length), 0);
  });
}

std::int64_t Batch::longest() const {
  std::int64_t length = 0;
  for (const auto& sequence : sequences) length = std::max(length, sequence.end());
  return length;
}

namespace {

// Warns once per model length, not once per text.
void warn_beyond_positions(std::int64_t longest, const ModelConfig& model) {
  static std::atomic<std::int64_t> said_for = 0;
  if (longest <= model.max_positions ||
      said_for.exchange(model.max_positions) == model.max_positions)
    return;
  log::warn(
      "a text of {} tokens is longer than the {} positions this model is made for "
      "(max_position_embeddings); what it does beyond them is extrapolation",
      longest, model.max_positions);
}

}  // namespace

void check_batch(const Batch& batch, const ModelConfig& model) {
  if (model.learned_positions() && batch.longest() > model.max_positions)
    bad_input(
        "a text of {} tokens is longer than the {} positions that this {} model has learned; take "
        "a smaller tokenizer.max_length",
        batch.longest(), model.max_positions, model.family);
  warn_beyond_positions(batch.longest(), model);
  for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
    const auto& sequence = batch.sequences[s];
    if (sequence.length == 0) bad_input("sequence {} has no tokens; at least one is needed", s);
    for (std::int64_t p = 0; p < sequence.length; ++p) {
      const auto id = batch.ids[as_index(sequence.begin + p)];
      if (id < 0 || id >= model.embedding_rows)
        bad_input(
            "token id {} at position {} of sequence {} is outside the model's vocabulary: expected "
            "0 to {}",
            id, p, s, model.embedding_rows - 1);
    }
  }
}

}  // namespace qkscope
