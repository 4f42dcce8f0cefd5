// Mixers in place of attention: gated delta nets, Mamba 2 and short convolutions; MixerConfig in
// qkscope/model.h has the formulas. Every result of a sequence depends on that sequence alone. All
// tensors are contiguous float32.
#pragma once

#include <span>

#include "engine/ops/linear_recurrence.h"

namespace qkscope {

MixerMemory make_mixer_memory(const MixerConfig& config, std::int64_t sequences);
std::int64_t mixer_memory_floats(const MixerConfig& config);  // of one sequence

struct MixerInput {
  const MixerConfig& config;
  const MixerWeights& weights;
  ConstTensorView x;  // (rows, d_model)
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> state_rows = {};  // ascending rows after which states are wanted
  const MixerMemory* past = nullptr;  // by slot, for sequences with past tokens; or null
};

// output (rows, value_heads, d_value): everything but the output projection.
void mix(const MixerInput& input, const MixerStates& states, TensorView output);

}  // namespace qkscope
