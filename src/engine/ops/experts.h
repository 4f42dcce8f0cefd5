// A mixture of experts (arXiv 1701.06538, in the form of arXiv 2401.04088). With router logits
// l = W_r x + b_r and T the k experts of the highest logits,
//   y = sum over e in T of g_e down_e (activation(gate_e x) * up_e x),
// where g_e = exp(l_e) / sum of exp(l_j) over all experts, or over T alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Rows of one expert that are multiplied at a time.
inline constexpr std::int64_t kMostExpertRows = 1024;

// For each row of logits (rows, experts) the k highest, highest first and of equal ones the first:
// their numbers and their weights g, both (rows, k) float32.
void choose_experts(ConstTensorView logits, bool normalized, TensorView weights,
                    TensorView indices);

// Which rows each expert has. A slot is a row's place for one of its k experts: slot row * k + i
// is that of expert indices[row, i].
struct ExpertRows {
  std::int64_t per_token = 0;       // k
  std::vector<std::int64_t> begin;  // (experts + 1) into slots
  std::vector<std::int64_t> slots;  // by expert, ascending within one

  std::span<const std::int64_t> of(std::int64_t expert) const {
    const auto first = begin[static_cast<std::size_t>(expert)];
    const auto end = begin[static_cast<std::size_t>(expert) + 1];
    return std::span(slots).subspan(static_cast<std::size_t>(first),
                                    static_cast<std::size_t>(end - first));
  }
};

// indices (rows, k) float32. They may have been edited: each must be the number of an expert, and
// those of a row must differ.
ExpertRows rows_by_expert(ConstTensorView indices, std::int64_t experts);

// gate and up (rows, k, d_mlp): what each row's chosen experts make of x (rows, d_model). A row
// depends on the same row of x alone, whatever the others choose.
void experts_gate_up(ConstTensorView x, const ExpertRows& by_expert,
                     std::span<const ExpertWeights> experts, TensorView gate, TensorView up);

// y (rows, d_model) = the sum of down_e times each row's gated (rows, k, d_mlp), by weights
// (rows, k); added in the order of the experts' numbers.
void experts_down(ConstTensorView gated, const ExpertRows& by_expert,
                  std::span<const ExpertWeights> experts, ConstTensorView weights, TensorView y);

}  // namespace qkscope
