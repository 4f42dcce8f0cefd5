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

// Memory of past tokens, for the sequences of a batch or for the slots of a cache.
struct GatedDeltaMemory {
  Tensor inputs;  // (sequences, taps - 1, channels) last inputs of the convolution
  Tensor states;  // (sequences, value_heads, d_key, d_value)
};
GatedDeltaMemory make_gated_delta_memory(const GatedDeltaConfig& config, std::int64_t sequences);

struct GatedDeltaInput {
  const GatedDeltaConfig& config;
  const GatedDeltaWeights& weights;
  ConstTensorView x;  // (rows, d_model)
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> state_rows = {};  // ascending rows whose states are wanted
  // Memory of the slots of sequences with past tokens, or null.
  const GatedDeltaMemory* past = nullptr;
};

// Results besides the output; an empty tensor is not computed.
struct GatedDeltaStates {
  TensorView rows = {};                // (state_rows, value_heads, d_key, d_value)
  GatedDeltaMemory* memory = nullptr;  // of the sequences after the batch, or null
};

// output (rows, value_heads, d_value): everything but the output projection.
void gated_delta(const GatedDeltaInput& input, const GatedDeltaStates& states, TensorView output);

// The recurrence alone. Inputs: q (scaled) and k of unit length and v, (rows, channels); rates b
// and logarithms of decays a, (rows, value_heads); states before the first row, (sequences,
// value_heads, d_key, d_value) or empty for zeros. Writes output (rows, value_heads, d_value), the
// states after `state_rows` and, unless empty, the states after each sequence.
struct DeltaRuleInput {
  const GatedDeltaConfig& config;
  ConstTensorView qkv;
  ConstTensorView rates;
  ConstTensorView log_decays;
  std::span<const Sequence> sequences;
  std::span<const std::int64_t> state_rows = {};
  ConstTensorView before = {};
};
void delta_rule(const DeltaRuleInput& input, TensorView output, TensorView row_states,
                TensorView after);

}  // namespace qkscope
