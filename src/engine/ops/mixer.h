// Mixers in place of attention: gated delta nets (arXiv 2412.06464), Kimi Delta Attention (arXiv
// 2510.26692), Mamba 2 (arXiv 2405.21060) and short convolutions; MixerConfig in qkscope/model.h
// has the formulas. Results do not depend on other sequences. Tensors are contiguous float32.
#pragma once

#include <span>

#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Memory of past tokens, per sequence of a batch or slot of a cache. The memory of a head holds its
// state before the current chunk and, for the rows of that chunk, k (chunk, d_key), the values
// written to the state (chunk, d_value) and the log decays (chunk), so that a sequence split over
// several passes gives the same bits as one pass. Kimi Delta Attention has no chunks: the memory of
// a head is its state, in blocks of rows::kStateColumns columns.
struct MixerState {
  Tensor inputs;  // (sequences, taps - 1, channels) last inputs of the convolution
  Tensor heads;   // (sequences, value_heads, floats of a head)
};
MixerState make_mixer_state(const MixerConfig& config, std::int64_t sequences);
std::int64_t mixer_state_floats(const MixerConfig& config);  // of one sequence
std::int64_t head_state_floats(const MixerConfig& config);   // of one head and sequence

// Optional results of a mixer in addition to its output; leave a field empty or null to skip it.
struct MixerStateOutputs {
  TensorView rows = {};          // MixerConfig::state_shape(state_rows)
  MixerState* memory = nullptr;  // new memory of the sequences, in batch order
};

struct MixerInput {
  const MixerConfig& config;
  const MixerWeights& weights;
  ConstTensorView x;  // (rows, d_model)
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> state_rows = {};  // ascending rows after which states are wanted
  const MixerState* past = nullptr;               // memory of past tokens, by cache slot; or null
};

// Computes output (rows, value_heads, d_value): the whole mixer except the output projection.
void apply_mixer(const MixerInput& input, const MixerStateOutputs& states, TensorView output);

// Linear recurrence of a mixer: output (rows, value_heads, d_value) = Sᵀ q. It runs in chunks of 64
// tokens: within a chunk, the values to write to the state are known (Mamba 2) or the solution of a
// triangular system (the WY representation of the delta rule, arXiv 2406.06484), and everything
// else is matrix products. Kimi Delta Attention, with a decay per channel, runs token by token.
struct LinearRecurrenceInput {
  const MixerConfig& config;
  ConstTensorView qkv;         // (rows, channels): q, k, v; q and k normalised for delta rules
  ConstTensorView rates;       // (rows, value_heads)
  ConstTensorView log_decays;  // (rows, decays)
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> state_rows = {};  // as in MixerInput
  const MixerState* past = nullptr;               // as in MixerInput
};
void run_linear_recurrence(const LinearRecurrenceInput& input, const MixerStateOutputs& states,
                           TensorView output);

}  // namespace qkscope
