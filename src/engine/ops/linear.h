// Linear layers y = x Wᵀ + b: float32 arithmetic, weights in their stored type; the conversion of
// stored weights to float32; and mixtures of experts (arXiv 1701.06538, in the form of arXiv
// 2401.04088). With router scores s = softmax(l) or sigmoid(l) of l = W_r x + b_r, and T the k
// experts with the largest s plus selection bias,
//   y = sum over e in T of g_e down_e (activation(gate_e x) * up_e x),
// where g_e = weight_scale s_e, divided by the sum of s over T if weights are normalised. Llama 4
// multiplies the input of expert e by g_e instead of its output.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "base/core/numbers.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Linear layer: x (rows, in), y (rows, out), both float32 with contiguous rows. A row of y depends
// only on the same row of x; its bits do not depend on the numbers of rows and threads.
void apply_linear(ConstTensorView x, const Linear& layer, TensorView y);
void apply_linear(ConstTensorView x, const WeightMatrix& weight, TensorView y);

// Applies several linear layers to one input, which is packed only once.
struct LinearOutput {
  const Linear& layer;
  TensorView y;
};
void apply_linear(ConstTensorView x, std::initializer_list<LinearOutput> projections);

// Largest size of packed weights, in floats, that all threads share (64 MiB).
inline constexpr std::int64_t kMostSharedWeights = std::int64_t{1} << 24;

// Rows [first, first + rows) and columns [begin, begin + depth) of a matrix.
struct WeightSubmatrix {
  std::int64_t first;
  std::int64_t rows;
  std::int64_t begin;
  std::int64_t depth;
};

// Converts part of the matrix to float32, with the scale applied; out is (rows, depth).
void weights_to_float32(const WeightMatrix& matrix, const WeightSubmatrix& part, float* out);

// Returns a view with another shape and strides, whose data start `offset` elements after v's data.
inline ConstTensorView strided_view(ConstTensorView v, std::int64_t offset, const Shape& shape,
                                    const Shape& strides) {
  const auto element = static_cast<std::int64_t>(dtype_size(v.dtype()));
  return {v.bytes() + offset * element, v.dtype(), shape, strides, v.device()};
}

// Largest number of rows of one expert that are multiplied at a time.
inline constexpr std::int64_t kMostExpertRows = 1024;

// Selects the k experts of each row of logits (rows, experts), best first; ties go to the lower
// index. Writes expert numbers and weights g, both (rows, k) float32. bias: (experts) or empty.
void choose_experts(ConstTensorView logits, const ExpertsConfig& config,
                    std::span<const float> bias, TensorView weights, TensorView indices);

// Rows of a batch grouped by chosen expert. Slot row * k + i stands for choice i of a row.
struct RowsByExpert {
  std::int64_t per_token = 0;       // k
  std::vector<std::int64_t> begin;  // (experts + 1) offsets into slots
  std::vector<std::int64_t> slots;  // ordered by expert, ascending within each

  std::span<const std::int64_t> expert_slots(std::int64_t expert) const {
    const auto first = begin[as_index(expert)];
    return std::span(slots).subspan(as_index(first), as_index(begin[as_index(expert) + 1] - first));
  }
};

// Groups rows by expert. indices: (rows, k) float32, possibly edited by an observer. Throws a
// bad-input error unless all indices are valid expert numbers and distinct within a row.
RowsByExpert group_rows_by_expert(ConstTensorView indices, std::int64_t experts);

// Computes gate and up (rows, k, d_mlp) of the selected experts for each row of x (rows, d_model).
// For experts without a gate, `gate` receives the up projection and `up` stays unwritten. `factors`
// (rows, k), if not empty, multiply the inputs.
void project_experts_gate_up(ConstTensorView x, const RowsByExpert& by_expert,
                             std::span<const ExpertWeights> experts, ConstTensorView factors,
                             TensorView gate, TensorView up);

// Down projection: y (rows, d_model) = sum of weight[e] * (down[e] @ gated[e]) over selected
// experts e. gated: (rows, k, d_mlp); weights: (rows, k), or empty if all weights are 1.
void project_experts_down(ConstTensorView gated, const RowsByExpert& by_expert,
                          std::span<const ExpertWeights> experts, ConstTensorView weights,
                          TensorView y);

}  // namespace qkscope
