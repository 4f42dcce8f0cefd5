// States of gated delta nets, Kimi Delta Attention, Mamba 2 and short convolutions, stored as part
// of a KV cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/recurrence_plan.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// Each cache slot has two rows. A pass reads the current row and writes the other one; commit()
// then swaps them, so a pass that throws leaves the states unchanged.
class RecurrentStates {
 public:
  RecurrentStates(const ModelConfig& model, std::int64_t slots)
      : input_floats_((model.mixer.taps - 1) * model.mixer.channels()),
        is_second_(as_index(slots)),
        layers_(model.layers.size()) {
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (model.layers[i].has_state())
        layers_[i].reserve(slots * cuda_mixer_state_bytes(model.mixer), "recurrent states");
  }

  // Last inputs of the convolution, shape (2 * slots, taps - 1, channels).
  float* inputs(std::int64_t layer) const { return layers_[as_index(layer)].as<float>(); }
  // Recurrent states, shape (2 * slots, value_heads, d_key, d_value); none for short convolutions.
  float* states(std::int64_t layer) const {
    return inputs(layer) + 2 * std::ssize(is_second_) * input_floats_;
  }
  std::int32_t current_row(std::int64_t slot) const {
    return static_cast<std::int32_t>(2 * slot) + (is_second_[as_index(slot)] ? 1 : 0);
  }
  std::int32_t next_row(std::int64_t slot) const { return current_row(slot) ^ 1; }

  void commit(std::span<const Sequence> sequences) {
    for (const auto& sequence : sequences) is_second_[as_index(sequence.slot)].flip();
  }

 private:
  std::int64_t input_floats_;
  std::vector<bool> is_second_;       // (slots) the current row is the second one
  std::vector<DeviceMemory> layers_;  // inputs, then states
};

}  // namespace qkscope::cuda
