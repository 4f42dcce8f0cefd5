// Mixture of experts on the GPU: rows are grouped by expert, each expert's products run on its
// group, and the outputs are combined row by row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/activation_copies.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/memory/device_weights.h"
#include "engine/device/cuda/pass_kernels.h"
#include "engine/device/cuda/products/products.h"
#include "engine/device/memory_plan.h"
#include "engine/ops/linear.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

class ExpertMixture {
 public:
  ExpertMixture(const ModelConfig& model, DType dtype, MatrixMultiplier& products,
                ActivationCopier& copies, cudaStream_t stream)
      : model_(model),
        dtype_(dtype),
        element_(static_cast<std::int64_t>(dtype_size(dtype))),
        products_(products),
        copies_(copies),
        stream_(stream) {}

  // Computes router logits of x (rows, d_model).
  void project_router(const void* x, std::int64_t rows, const DeviceLinear& router) {
    products_.multiply({.x = x,
                        .linear = router,
                        .y = logits_.reserve(rows * router.out * element_, "the router"),
                        .rows = rows});
  }
  void choose_experts(std::int64_t rows, const float* selection_bias) {
    rows_ = rows;
    const auto bytes = rows * model_.experts.per_token * static_cast<std::int64_t>(sizeof(float));
    cuda::choose_experts({.logits = logits_.data(),
                          .bias = selection_bias,
                          .weights = static_cast<float*>(weights_.reserve(bytes, "the router")),
                          .indices = static_cast<float*>(indices_.reserve(bytes, "the router")),
                          .rows = rows,
                          .config = model_.experts,
                          .dtype = dtype_},
                         stream_);
  }

  // Computes gate and up of the selected experts for rows [begin, begin + count) of x.
  void project_gate_up(const void* x, std::int64_t begin, std::int64_t count,
                       const std::vector<DeviceLinear>& weights) {
    if (begin == 0) chosen_ = copies_.fetch(view(ActivationBuffer::expert_indices, rows_));
    group_rows(begin, count);
    const auto width = model_.experts.d_mlp;
    const auto* rows = numbers_.as<std::int32_t>();
    const auto* places = rows + 2 * padded_;
    gather_rows(x, model_.d_model, rows,
                sorted_.reserve_with_slack(padded_ * model_.d_model * element_, "the experts"),
                padded_, model_.d_model);
    multiply_expert_rows(weights);
    gather_rows(made_.data(), 2 * width, places,
                gate_.reserve_with_slack(slot_count() * width * element_, "the experts"),
                slot_count(), width);
    gather_rows(element_address(made_, width), 2 * width, places,
                up_.reserve_with_slack(slot_count() * width * element_, "the experts"),
                slot_count(), width);
  }
  void apply_gate() {
    cuda::apply_gate({.activation = model_.activation,
                      .swiglu = model_.swiglu,
                      .gate_up = gate_.data(),
                      .up = up_.data(),
                      .y = gate_.data(),
                      .rows = slot_count(),
                      .n = model_.experts.d_mlp,
                      .dtype = dtype_},
                     stream_);
  }
  // Computes y (count, d_model), the weighted sum of the experts' outputs.
  void project_down(const std::vector<DeviceLinear>& weights, void* y) {
    const auto width = model_.experts.d_mlp;
    const auto* slots_of_rows = numbers_.as<std::int32_t>() + padded_;
    gather_rows(gate_.data(), width, slots_of_rows,
                sorted_.reserve_with_slack(padded_ * width * element_, "the experts"), padded_,
                width);
    multiply_expert_rows(weights);
    combine_experts({.x = made_.data(),
                     .weights = weights_.as<float>() + begin_ * model_.experts.per_token,
                     .places = slots_of_rows + padded_,
                     .y = y,
                     .rows = count_,
                     .k = model_.experts.per_token,
                     .n = model_.d_model,
                     .factor = static_cast<float>(model_.residual_scale),
                     .dtype = dtype_},
                    stream_);
  }

  // Adds the output of the shared expert for x (count, d_model) to y (count, d_model).
  void add_shared_expert(const void* x, const DeviceLayer& layer, void* y) {
    const auto width = model_.experts.shared_d_mlp;
    void* gate_up =
        shared_gate_up_.reserve_with_slack(count_ * 2 * width * element_, "the experts");
    void* gated = shared_.reserve_with_slack(count_ * width * element_, "the experts");
    products_.multiply({.x = x, .linear = layer.gate_up, .y = gate_up, .rows = count_});
    cuda::apply_gate({.activation = model_.activation,
                      .gate_up = gate_up,
                      .y = gated,
                      .rows = count_,
                      .n = width,
                      .dtype = dtype_},
                     stream_);
    if (layer.shared_gate.out > 0)
      gate_rows({.x = x,
                 .weight = layer.shared_gate.weight,
                 .y = gated,
                 .rows = count_,
                 .in = model_.d_model,
                 .n = width,
                 .dtype = dtype_},
                stream_);
    products_.multiply({.x = gated,
                        .linear = layer.down,
                        .y = y,
                        .rows = count_,
                        .factor = static_cast<float>(model_.residual_scale),
                        .accumulate = true});
  }

  DeviceView view(ActivationBuffer buffer, std::int64_t rows) const {
    const auto& experts = model_.experts;
    const auto plain = [&](const DeviceMemory& block, std::int64_t width, DType dtype) {
      return DeviceView{block.data(), width, rows, 1, width, false, dtype};
    };
    const auto wide = [&](const DeviceMemory& block) {
      return DeviceView{block.data(),  experts.per_token * experts.d_mlp,
                        count_,        experts.per_token,
                        experts.d_mlp, true,
                        dtype_};
    };
    switch (buffer) {
      case ActivationBuffer::router_logits:
        return plain(logits_, experts.count, dtype_);
      case ActivationBuffer::expert_weights:
        return plain(weights_, experts.per_token, DType::f32);
      case ActivationBuffer::expert_indices:
        return plain(indices_, experts.per_token, DType::f32);
      case ActivationBuffer::gate:
        return wide(gate_);
      default:
        return wide(up_);
    }
  }

 private:
  struct ExpertRowRange {
    std::int64_t begin = 0;
    std::int64_t rows = 0;
  };
  // Groups rows by expert and pads each group to a multiple of kExpertRowUnit, so that the products
  // have few distinct shapes. Padding rows are copies whose results are never read.
  void group_rows(std::int64_t begin, std::int64_t count) {
    const auto k = model_.experts.per_token;
    begin_ = begin;
    count_ = count;
    const auto by_expert =
        group_rows_by_expert(chosen_.view().rows(begin, begin + count), model_.experts.count);
    spans_.clear();
    padded_ = 0;
    for (std::int64_t expert = 0; expert < model_.experts.count; ++expert) {
      const auto used = std::ssize(by_expert.expert_slots(expert));
      const auto rows = (used + kExpertRowUnit - 1) / kExpertRowUnit * kExpertRowUnit;
      spans_.push_back({padded_, rows});
      padded_ += rows;
    }
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(2 * padded_ + slot_count()));
    const auto places = numbers.begin() + 2 * padded_;
    std::fill(numbers.begin(), numbers.begin() + padded_, static_cast<std::int32_t>(begin));
    for (std::int64_t expert = 0; expert < model_.experts.count; ++expert) {
      auto place = spans_[static_cast<std::size_t>(expert)].begin;
      for (const auto slot : by_expert.expert_slots(expert)) {
        numbers[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(begin + slot / k);
        numbers[static_cast<std::size_t>(padded_ + place)] = static_cast<std::int32_t>(slot);
        places[slot] = static_cast<std::int32_t>(place++);
      }
    }
    numbers_.upload(numbers, "the experts", stream_);
  }

  // Gathers rows: to (count, n) = from[rows], the first n elements of each row.
  void gather_rows(const void* from, std::int64_t stride, const std::int32_t* rows, void* to,
                   std::int64_t count, std::int64_t n) {
    copy_rows({.x = from,
               .x_stride = stride,
               .x_rows = rows,
               .y = to,
               .y_stride = n,
               .count = count,
               .n = n,
               .dtype = dtype_},
              stream_);
  }

  // Multiplies each expert's rows in sorted_ with its matrix (out, in); the results go to made_.
  void multiply_expert_rows(const std::vector<DeviceLinear>& weights) {
    const auto [in, out] = std::pair(weights.front().in, weights.front().out);
    made_.reserve_with_slack(padded_ * out * element_, "the experts");
    for (std::size_t expert = 0; expert < spans_.size(); ++expert) {
      const auto [begin, rows] = spans_[expert];
      products_.multiply({.x = element_address(sorted_, begin * in),
                          .linear = weights[expert],
                          .y = element_address(made_, begin * out),
                          .rows = rows});
    }
  }
  std::int64_t slot_count() const { return count_ * model_.experts.per_token; }
  void* element_address(const DeviceMemory& block, std::int64_t element) const {
    return block.as<std::byte>() + element * element_;
  }

  const ModelConfig& model_;
  DType dtype_;
  std::int64_t element_;  // bytes
  MatrixMultiplier& products_;
  ActivationCopier& copies_;
  cudaStream_t stream_;

  DeviceMemory logits_;   // (rows, experts)
  DeviceMemory weights_;  // (rows, k) float32
  DeviceMemory indices_;  // (rows, k) float32
  Tensor chosen_;         // (rows, k) expert indices on the host
  std::int64_t rows_ = 0;

  std::int64_t begin_ = 0;             // first row of the chunk
  std::int64_t count_ = 0;             // rows of the chunk
  std::int64_t padded_ = 0;            // grouped rows, padding included
  std::vector<ExpertRowRange> spans_;  // (experts)
  // Index lists (int32): source row and slot of each grouped row, and the grouped row of each slot.
  UploadBuffer numbers_;
  DeviceMemory sorted_;          // (padded, d_model or d_mlp) inputs of the products
  DeviceMemory made_;            // (padded, 2 d_mlp or d_model) outputs of the products
  DeviceMemory gate_;            // (slots, d_mlp)
  DeviceMemory up_;              // (slots, d_mlp)
  DeviceMemory shared_gate_up_;  // (count, 2 shared_d_mlp)
  DeviceMemory shared_;          // (count, shared_d_mlp)
};

}  // namespace qkscope::cuda
