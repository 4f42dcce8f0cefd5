#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "engine/ops/gemm.h"
#include "engine/ops/linear.h"
#include "engine/ops/row_kernels.h"

namespace qkscope {
namespace {

TensorView scratch_matrix(ScratchFloats& memory, std::int64_t rows, std::int64_t width) {
  return {reinterpret_cast<std::byte*>(memory.floats(rows * width)), DType::f32, {rows, width}};
}

// Calls body(i, slots[i]) for every i, in parallel.
template <typename Body>
void for_each_slot(std::span<const std::int64_t> slots, Body body) {
  constexpr std::int64_t kSlotsPerTask = 16;
  parallel_for_ranges(std::ssize(slots), kSlotsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) body(i, slots[as_index(i)]);
  });
}

// Calls body(expert, slots) in expert order, with at most kMostExpertRows slots at a time.
template <typename Body>
void for_each_expert(const RowsByExpert& rows, Body body) {
  for (std::int64_t expert = 0; expert + 1 < std::ssize(rows.begin); ++expert) {
    const auto slots = rows.expert_slots(expert);
    for (std::size_t first = 0; first < slots.size(); first += kMostExpertRows)
      body(as_index(expert),
           slots.subspan(first, std::min<std::size_t>(kMostExpertRows, slots.size() - first)));
  }
}

// Makes NaN sort first, so that the softmax propagates it.
float replace_nan_by_infinity(float logit) {
  return std::isnan(logit) ? std::numeric_limits<float>::infinity() : logit;
}

// Sets the selection scores of experts outside the best groups to -infinity. Groups are ranked by
// the sum of their two highest scores, or by the highest one; ties go to the lower group.
void exclude_low_scored_groups(std::vector<float>& selection, const ExpertsConfig& config) {
  const auto size = std::ssize(selection) / config.groups;
  std::vector<float> group_scores;
  for (auto first = selection.begin(); first != selection.end(); first += size) {
    std::array<float, 2> best{};
    std::partial_sort_copy(first, first + size, best.begin(), best.end(), std::greater<>());
    group_scores.push_back(config.group_maximum ? best[0] : best[0] + best[1]);
  }
  for (std::int64_t g = 0; g < config.groups; ++g) {
    const auto better = [&, at = as_index(g)](std::size_t other) {
      return group_scores[other] > group_scores[at] ||
             (group_scores[other] == group_scores[at] && other < at);
    };
    std::int64_t above = 0;
    for (std::size_t other = 0; other < group_scores.size(); ++other) above += better(other);
    if (above >= config.chosen_groups)
      std::fill_n(selection.begin() + g * size, size, -std::numeric_limits<float>::infinity());
  }
}

std::int64_t read_expert_index(ConstTensorView indices, std::int64_t row, std::int64_t place,
                               std::int64_t experts) {
  const auto k = indices.dim(1);
  const float* chosen = indices.data<float>() + row * k;
  const float index = chosen[place];
  if (!(index >= 0.0f && index < static_cast<float>(experts)) || index != std::floor(index))
    bad_input("expert index {} in row {}: expected the number of an expert, 0 to {}", index, row,
              experts - 1);
  if (std::count(chosen, chosen + place, index) > 0)
    bad_input("row {} chooses expert {} twice; its {} experts must differ", row, index, k);
  return static_cast<std::int64_t>(index);
}

}  // namespace

void choose_experts(ConstTensorView logits, const ExpertsConfig& config,
                    std::span<const float> bias, TensorView weights, TensorView indices) {
  const auto experts = logits.dim(1);
  const auto k = weights.dim(1);
  QKSCOPE_ASSERT(logits.is_contiguous() && weights.is_contiguous() && indices.is_contiguous());
  QKSCOPE_ASSERT(weights.shape() == indices.shape() && k <= experts);
  parallel_for(logits.dim(0), [&](std::int64_t row) {
    thread_local std::vector<std::int64_t> order;
    thread_local std::vector<float> scores;
    thread_local std::vector<float> selection;
    const float* l = logits.data<float>() + row * experts;
    float* weight = weights.data<float>() + row * k;
    float* index = indices.data<float>() + row * k;
    scores.assign(l, l + experts);
    if (config.sigmoid)
      for (float& score : scores) score = 1.0f / (1.0f + std::exp(-score));
    else
      rows::softmax(l, experts, scores.data());
    selection.assign(l, l + experts);  // the same order as that of the scores
    if (config.groups > 1) selection = scores;
    for (std::size_t e = 0; e < bias.size(); ++e) selection[e] = scores[e] + bias[e];
    if (config.groups > 1) exclude_low_scored_groups(selection, config);
    order.resize(as_index(experts));
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + k, order.end(),
                      [](std::int64_t a, std::int64_t b) {
                        const float x = replace_nan_by_infinity(selection[as_index(a)]);
                        const float y = replace_nan_by_infinity(selection[as_index(b)]);
                        return x > y || (x == y && a < b);
                      });
    float sum = 0.0f;
    for (std::int64_t i = 0; i < k; ++i) {
      index[i] = static_cast<float>(order[as_index(i)]);
      weight[i] = scores[as_index(order[as_index(i)])];
      sum += weight[i];
    }
    const auto scale = static_cast<float>(config.weight_scale);
    for (std::int64_t i = 0; i < k; ++i) weight[i] *= config.normalized ? scale / sum : scale;
  });
}

RowsByExpert group_rows_by_expert(ConstTensorView indices, std::int64_t experts) {
  const auto k = indices.dim(1);
  std::vector<std::int64_t> chosen;
  chosen.reserve(as_index(indices.size()));
  RowsByExpert rows{.per_token = k,
                    .begin = std::vector<std::int64_t>(as_index(experts) + 1),
                    .slots = std::vector<std::int64_t>(as_index(indices.size()))};
  for (std::int64_t slot = 0; slot < indices.size(); ++slot) {
    chosen.push_back(read_expert_index(indices, slot / k, slot % k, experts));
    ++rows.begin[as_index(chosen.back()) + 1];
  }
  std::partial_sum(rows.begin.begin(), rows.begin.end(), rows.begin.begin());
  auto next = rows.begin;
  for (std::int64_t slot = 0; slot < indices.size(); ++slot) {
    auto& place = next[as_index(chosen[as_index(slot)])];
    rows.slots[as_index(place++)] = slot;
  }
  return rows;
}

void project_experts_gate_up(ConstTensorView x, const RowsByExpert& by_expert,
                             std::span<const ExpertWeights> experts, ConstTensorView factors,
                             TensorView gate, TensorView up) {
  QKSCOPE_ASSERT(gate.is_contiguous() && up.is_contiguous() && gate.shape() == up.shape());
  static thread_local ScratchFloats inputs;
  static thread_local ScratchFloats gates;
  static thread_local ScratchFloats ups;
  const auto d_model = x.dim(1);
  const auto d_mlp = gate.dim(2);
  const bool gated = !experts.front().gate.weight.values.empty();
  for_each_expert(by_expert, [&](std::size_t expert, std::span<const std::int64_t> slots) {
    const auto count = std::ssize(slots);
    const auto taken = scratch_matrix(inputs, count, d_model);
    const auto g = scratch_matrix(gates, count, d_mlp);
    const auto u = scratch_matrix(ups, count, d_mlp);
    for_each_slot(slots, [&](std::int64_t i, std::int64_t slot) {
      std::copy_n(x.data<float>() + slot / by_expert.per_token * d_model, d_model,
                  taken.data<float>() + i * d_model);
      if (!factors.empty())
        rows::scale(taken.data<float>() + i * d_model, d_model, factors.data<float>()[slot]);
    });
    if (gated)
      linear(taken, {{experts[expert].gate, g}, {experts[expert].up, u}});
    else
      linear(taken, experts[expert].up, g);
    for_each_slot(slots, [&](std::int64_t i, std::int64_t slot) {
      std::copy_n(g.data<float>() + i * d_mlp, d_mlp, gate.data<float>() + slot * d_mlp);
      if (gated) std::copy_n(u.data<float>() + i * d_mlp, d_mlp, up.data<float>() + slot * d_mlp);
    });
  });
}

void project_experts_down(ConstTensorView gated, const RowsByExpert& by_expert,
                          std::span<const ExpertWeights> experts, ConstTensorView weights,
                          TensorView y) {
  QKSCOPE_ASSERT(gated.is_contiguous() && y.is_contiguous());
  static thread_local ScratchFloats inputs;
  static thread_local ScratchFloats outputs;
  const auto d_model = y.dim(1);
  const auto d_mlp = gated.dim(2);
  std::fill_n(y.data<float>(), y.size(), 0.0f);
  for_each_expert(by_expert, [&](std::size_t expert, std::span<const std::int64_t> slots) {
    const auto count = std::ssize(slots);
    const auto taken = scratch_matrix(inputs, count, d_mlp);
    const auto made = scratch_matrix(outputs, count, d_model);
    for_each_slot(slots, [&](std::int64_t i, std::int64_t slot) {
      std::copy_n(gated.data<float>() + slot * d_mlp, d_mlp, taken.data<float>() + i * d_mlp);
    });
    linear(taken, experts[expert].down, made);
    for_each_slot(slots, [&](std::int64_t i, std::int64_t slot) {
      rows::add_scaled(y.data<float>() + slot / by_expert.per_token * d_model,
                       made.data<float>() + i * d_model, d_model,
                       weights.empty() ? 1.0f : weights.data<float>()[slot]);
    });
  });
}

}  // namespace qkscope
