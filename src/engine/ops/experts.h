// Mixture of experts (arXiv 1701.06538, in the form of arXiv 2401.04088). With router logits l =
// W_r x + b_r and T the k experts with the largest logits,
//   y = sum over e in T of g_e down_e (activation(gate_e x) * up_e x),
// where g_e = exp(l_e) / sum of exp(l_j), and j runs over all experts or over T only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/core/numbers.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Largest number of rows of one expert that are multiplied at a time.
inline constexpr std::int64_t kMostExpertRows = 1024;

// Selects the k largest logits of each row (rows, experts) in descending order; ties go to the
// lower index. Writes expert numbers and weights g, both (rows, k) float32.
void choose_experts(ConstTensorView logits, bool normalized, TensorView weights,
                    TensorView indices);

// Rows grouped by expert. Slot row * k + i represents the choice indices[row, i].
struct ExpertRows {
  std::int64_t per_token = 0;       // k
  std::vector<std::int64_t> begin;  // (experts + 1) offsets into slots
  std::vector<std::int64_t> slots;  // ordered by expert, ascending within each

  // Returns the slots of one expert.
  std::span<const std::int64_t> slots_of(std::int64_t expert) const {
    const auto first = begin[as_index(expert)];
    return std::span(slots).subspan(as_index(first), as_index(begin[as_index(expert) + 1] - first));
  }
};

// Groups rows by expert. indices: (rows, k) float32, possibly edited by an observer. Throws a
// bad-input error unless all indices are valid expert numbers and distinct within a row.
ExpertRows rows_by_expert(ConstTensorView indices, std::int64_t experts);

// gate and up (rows, k, d_mlp) of x (rows, d_model) for the chosen experts, row by row.
void project_experts_gate_up(ConstTensorView x, const ExpertRows& by_expert,
                             std::span<const ExpertWeights> experts, TensorView gate,
                             TensorView up);

// y (rows, d_model) = sum over experts of weights (rows, k) times down_e gated (rows, k, d_mlp).
void project_experts_down(ConstTensorView gated, const ExpertRows& by_expert,
                          std::span<const ExpertWeights> experts, ConstTensorView weights,
                          TensorView y);

}  // namespace qkscope
