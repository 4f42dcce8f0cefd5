// Linear recurrences over the tokens of a sequence: the gated delta rule (arXiv 2412.06464) and
// Mamba 2 (arXiv 2405.21060); MixerConfig in qkscope/model.h has the formulas. A recurrence runs in
// chunks of 64 tokens: within a chunk, the values to write to the state are known (Mamba 2) or the
// solution of a triangular system (the WY representation of the delta rule, arXiv 2406.06484), and
// everything else is matrix products. Every result of a sequence depends on that sequence alone.
// All tensors are contiguous float32.
#pragma once

#include <span>

#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

inline constexpr std::int64_t kRecurrenceChunk = 64;  // tokens; chunks begin at multiples of it

// Memory of past tokens, for the sequences of a batch or for the slots of a cache. The memory of a
// head is its state before the current chunk, and of the rows of that chunk k (chunk, d_key), the
// values written to the state (chunk, d_value) and the logarithms of the decays (chunk): a sequence
// that continues has the bits of a sequence that runs at once.
struct MixerMemory {
  Tensor inputs;  // (sequences, taps - 1, channels) last inputs of the convolution
  Tensor heads;   // (sequences, value_heads, floats of a head); empty in a short convolution
};
std::int64_t recurrence_head_floats(const MixerConfig& config);

// Results besides the output; empty or null: not wanted.
struct MixerStates {
  TensorView rows = {};           // MixerConfig::state_shape(state_rows)
  MixerMemory* memory = nullptr;  // of the sequences of the batch, in their order
};

struct LinearRecurrenceInput {
  const MixerConfig& config;
  ConstTensorView qkv;         // (rows, channels): q, k and v; those of the delta rule have their
                               // unit length and scale
  ConstTensorView rates;       // (rows, value_heads)
  ConstTensorView log_decays;  // (rows, value_heads)
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> state_rows = {};  // ascending rows after which states are wanted
  const MixerMemory* past = nullptr;  // by slot, for sequences with past tokens; or null
};

// output (rows, value_heads, d_value) = Sᵀ q.
void linear_recurrence(const LinearRecurrenceInput& input, const MixerStates& states,
                       TensorView output);

}  // namespace qkscope
