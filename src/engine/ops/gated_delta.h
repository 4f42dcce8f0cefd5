// Gated delta net (arXiv 2412.06464), a linear recurrence over the tokens of a sequence;
// GatedDeltaConfig in qkscope/model.h has the formulas. The recurrence runs in chunks of 64 tokens
// (the WY representation, arXiv 2406.06484): within a chunk, the values to write to the state are
// the solution of a triangular system, and everything else is matrix products. Every result of a
// sequence depends on that sequence alone. All tensors are contiguous float32.
#pragma once

#include <span>

#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

inline constexpr std::int64_t kDeltaChunk = 64;  // tokens; chunks begin at multiples of it

// Memory of past tokens, for the sequences of a batch or for the slots of a cache. The memory of a
// head is its state before the current chunk, and of the rows of that chunk k (chunk, d_key), the
// values written to the state (chunk, d_value) and the logarithms of the decays (chunk): a sequence
// that continues has the bits of a sequence that runs at once.
struct GatedDeltaMemory {
  Tensor inputs;  // (sequences, taps - 1, channels) last inputs of the convolution
  Tensor heads;   // (sequences, value_heads, floats of a head)
};
GatedDeltaMemory make_gated_delta_memory(const GatedDeltaConfig& config, std::int64_t sequences);
std::int64_t gated_delta_memory_floats(const GatedDeltaConfig& config);  // of one sequence

// Results besides the output; empty or null: not wanted.
struct GatedDeltaStates {
  TensorView rows = {};                // (state_rows, value_heads, d_key, d_value)
  GatedDeltaMemory* memory = nullptr;  // of the sequences of the batch, in their order
};

struct GatedDeltaInput {
  const GatedDeltaConfig& config;
  const GatedDeltaWeights& weights;
  ConstTensorView x;  // (rows, d_model)
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> state_rows = {};  // ascending rows after which states are wanted
  const GatedDeltaMemory* past = nullptr;  // by slot, for sequences with past tokens; or null
};

// output (rows, value_heads, d_value): everything but the output projection.
void gated_delta(const GatedDeltaInput& input, const GatedDeltaStates& states, TensorView output);

// The recurrence alone.
struct DeltaRuleInput {
  const GatedDeltaConfig& config;
  ConstTensorView qkv;         // (rows, channels): q (scaled) and k of unit length, and v
  ConstTensorView rates;       // (rows, value_heads)
  ConstTensorView log_decays;  // (rows, value_heads)
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> state_rows = {};
  const GatedDeltaMemory* past = nullptr;
};
void delta_rule(const DeltaRuleInput& input, const GatedDeltaStates& states, TensorView output);

}  // namespace qkscope
