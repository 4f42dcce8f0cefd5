// Mixture of experts on the GPU: slots (a row and one of its experts) are sorted by expert, each
// expert's products run on its group of rows, and the outputs are combined row by row. On Hopper
// one launch multiplies the rows of all experts; elsewhere, and in float32, experts run one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/device_weights.h"
#include "engine/device/cuda/pass_context.h"
#include "engine/device/memory_plan.h"
#include "engine/ops/linear.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

class MixtureOfExperts {
 public:
  // `grouped`: expert weights are interleaved for the grouped kernel; see supports_grouped_gemm().
  MixtureOfExperts(const PassContext& pass, int device, bool grouped)
      : pass_(pass),
        device_(device),
        grouped_(grouped),
        gate_up_width_((pass.model.gated_mlp() ? 2 : 1) * pass.model.experts.d_mlp) {}

  // Computes router logits of x (rows, d_model).
  void project_router(const void* x, std::int64_t rows, const DeviceLinear& router) {
    pass_.products.multiply({.x = x,
                             .linear = router,
                             .y = logits_.reserve(rows * router.out * element_, "the router"),
                             .rows = rows});
  }
  void choose_experts(std::int64_t rows, const float* selection_bias) {
    rows_ = rows;
    routing_edited_ = false;
    const auto bytes = rows * model_.experts.per_token * kFloatBytes;
    cuda::choose_experts({.logits = logits_.data(),
                          .bias = selection_bias,
                          .weights = static_cast<float*>(weights_.reserve(bytes, "the router")),
                          .indices = static_cast<float*>(indices_.reserve(bytes, "the router")),
                          .rows = rows,
                          .config = model_.experts,
                          .dtype = dtype_},
                         pass_.stream);
  }

  void mark_routing_edited() { routing_edited_ = true; }

  // Gathers the inputs of the selected experts for rows [begin, begin + count) of x. Gate and up
  // are computed later: by restore_row_order() if an observer reads them, else by apply_gate().
  void project_gate_up(const void* x, std::int64_t begin, std::int64_t count,
                       const std::vector<DeviceLinear>& weights) {
    if (begin == 0 && routing_edited_)  // throws if an edited index is out of range
      group_rows_by_expert(
          pass_.copies.fetch_activation(view(ActivationBuffer::expert_indices, rows_)),
          model_.experts.count);
    begin_ = begin;
    count_ = count;
    sort_slots_by_expert();
    gate_up_weights_ = &weights;
    content_ = BufferContent::inputs;
    const auto first = begin * model_.d_model * element_;
    pass_.copy_rows({.x = static_cast<const std::byte*>(x) + first,
                     .x_stride = model_.d_model,
                     .x_rows = slots_,
                     .k = model_.experts.per_token,
                     .factors = model_.experts.scales_input ? router_weights_of_chunk() : nullptr,
                     .y = reserve_rows(wide_, model_.d_model),
                     .y_stride = model_.d_model,
                     .count = slot_count(),
                     .n = model_.d_model});
  }

  // Reorders gate and up (after apply_gate(): their gated product) from expert order to row order,
  // slot row * k + choice, for an observer. In an MLP without a gate, gate_ holds the up product.
  void restore_row_order() {
    const auto width = model_.experts.d_mlp;
    if (content_ == BufferContent::inputs) {
      multiply_by_expert_weights(wide_, *gate_up_weights_, reserve_rows(gate_up_, gate_up_width_));
      gather_rows(gate_up_.data(), gate_up_width_, places_, reserve_rows(gate_, width));
      if (gate_up_width_ > width)
        gather_rows(gate_up_.as<std::byte>() + width * element_, gate_up_width_, places_,
                    reserve_rows(up_, width));
    } else if (content_ == BufferContent::gated) {
      gather_rows(gated_.data(), width, places_, reserve_rows(gate_, width));
    }
    content_ = BufferContent::slots;
  }

  void apply_gate() {
    if (content_ == BufferContent::slots) return apply_gate(gate_.data(), up_.data(), gate_.data());
    const auto width = model_.experts.d_mlp;
    void* gated = reserve_rows(gated_, width);
    content_ = BufferContent::gated;
    if (grouped_ && model_.gated_mlp() && model_.activation == Activation::silu &&
        gate_up_weights_->front().bias == nullptr)
      return multiply_by_expert_weights(wide_, *gate_up_weights_, gated, /*apart=*/false);
    multiply_by_expert_weights(wide_, *gate_up_weights_, reserve_rows(gate_up_, gate_up_width_));
    apply_gate(gate_up_.data(), nullptr, gated);
  }

  // Computes y (count, d_model), the weighted sum of the experts' outputs.
  void project_down(const std::vector<DeviceLinear>& weights, void* y) {
    const auto width = model_.experts.d_mlp;
    if (content_ == BufferContent::slots)
      gather_rows(gate_.data(), width, slots_, reserve_rows(gated_, width));
    multiply_by_expert_weights(gated_, weights, wide_.data());
    combine_experts({.x = wide_.data(),
                     .weights = model_.experts.scales_input ? nullptr : router_weights_of_chunk(),
                     .places = places_,
                     .y = y,
                     .rows = count_,
                     .k = model_.experts.per_token,
                     .n = model_.d_model,
                     .factor = static_cast<float>(model_.residual_scale),
                     .dtype = dtype_},
                    pass_.stream);
  }

  // Adds the output of the shared expert for x (count, d_model) to y (count, d_model).
  void add_shared_expert(const void* x, const DeviceLayer& layer, void* y) {
    const auto width = model_.experts.shared_d_mlp;
    void* gate_up =
        shared_gate_up_.reserve_with_slack(count_ * 2 * width * element_, "the experts");
    void* gated = shared_.reserve_with_slack(count_ * width * element_, "the experts");
    pass_.products.multiply({.x = x, .linear = layer.gate_up, .y = gate_up, .rows = count_});
    pass_.apply_gate({.activation = model_.activation,
                      .gated = model_.gated_mlp(),
                      .gate_up = gate_up,
                      .y = gated,
                      .rows = count_,
                      .n = width});
    if (layer.shared_gate.out > 0)
      apply_row_gate({.x = x,
                      .weight = layer.shared_gate.weight,
                      .y = gated,
                      .rows = count_,
                      .in = model_.d_model,
                      .n = width,
                      .dtype = dtype_},
                     pass_.stream);
    pass_.products.multiply({.x = gated,
                             .linear = layer.down,
                             .y = y,
                             .rows = count_,
                             .factor = static_cast<float>(model_.residual_scale),
                             .accumulate = true});
  }

  ActivationView view(ActivationBuffer buffer, std::int64_t rows) const {
    const auto& experts = model_.experts;
    const auto plain = [&](const DeviceMemory& block, std::int64_t width, DType dtype) {
      return ActivationView{block.data(), width, rows, 1, width, false, dtype};
    };
    const auto wide = [&](const DeviceMemory& block) {
      return ActivationView{block.data(),  experts.per_token * experts.d_mlp,
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
  enum class BufferContent {
    inputs,  // wide_ holds the inputs of the experts
    gated,   // gated_ holds the inputs of `down`
    slots,   // gate_ and up_ (or gate_ alone: gated values) are in row order
  };

  void sort_slots_by_expert() {
    const auto numbers = model_.experts.count + 1 + 2 * slot_count();
    begins_ = static_cast<std::int32_t*>(
        numbers_.reserve_with_slack(numbers * std::int64_t{sizeof(std::int32_t)}, "the experts"));
    slots_ = begins_ + model_.experts.count + 1;
    places_ = slots_ + slot_count();
    group_slots_by_expert({.indices = indices_.as<float>() + begin_ * model_.experts.per_token,
                           .begin = begins_,
                           .slots = slots_,
                           .places = places_,
                           .count = slot_count(),
                           .experts = model_.experts.count},
                          pass_.stream);
    if (grouped_) return;
    host_begins_.resize(as_index(model_.experts.count + 1));
    check(cudaMemcpyAsync(host_begins_.data(), begins_, host_begins_.size() * sizeof(std::int32_t),
                          cudaMemcpyDeviceToHost, pass_.stream),
          "read the experts' rows");
    check(cudaStreamSynchronize(pass_.stream), "read the experts' rows");
  }

  // Gathers rows of gate, up or their gated product: to (slots, d_mlp) = from[rows].
  void gather_rows(const void* from, std::int64_t stride, const std::int32_t* rows, void* to) {
    pass_.copy_rows({.x = from,
                     .x_stride = stride,
                     .x_rows = rows,
                     .y = to,
                     .y_stride = model_.experts.d_mlp,
                     .count = slot_count(),
                     .n = model_.experts.d_mlp});
  }

  // Multiplies each row of x (slots, in), grouped by expert, by its expert's matrix: y (slots, out)
  // or, if `apart` is false, y (slots, out / 2) = silu(gate) * up.
  void multiply_by_expert_weights(const DeviceMemory& x, const std::vector<DeviceLinear>& weights,
                                  void* y, bool apart = true) {
    const auto& first = weights.front();
    if (!grouped_) return multiply_by_experts_in_turn(x, weights, y);
    const auto* next = static_cast<const std::byte*>(weights[weights.size() > 1 ? 1 : 0].weight);
    run_gated_gemm({.x = x.data(),
                    .weight = first.weight,
                    .y = y,
                    .rows = slot_count(),
                    .in = first.in,
                    .n = first.out / 2,
                    .apart = apart,
                    .bf16 = dtype_ == DType::bf16,
                    .device = device_,
                    .groups = static_cast<int>(weights.size()),
                    .begin = begins_,
                    .bias = first.bias,
                    .group_stride = (next - static_cast<const std::byte*>(first.weight)) / element_,
                    .workspace = pass_.products.workspace()},
                   pass_.stream);
  }

  // Multiplies expert by expert, with row counts rounded up to kExpertRowUnit. Later experts
  // overwrite the surplus rows of y; for the last expert, reserve_rows() allocates spare rows.
  void multiply_by_experts_in_turn(const DeviceMemory& x, const std::vector<DeviceLinear>& weights,
                                   void* y) {
    for (std::size_t expert = 0; expert < weights.size(); ++expert) {
      const std::int64_t begin = host_begins_[expert];
      const auto used = host_begins_[expert + 1] - begin;
      pass_.products.multiply(
          {.x = x.as<std::byte>() + begin * weights[expert].in * element_,
           .linear = weights[expert],
           .y = static_cast<std::byte*>(y) + begin * weights[expert].out * element_,
           .rows = (used + kExpertRowUnit - 1) / kExpertRowUnit * kExpertRowUnit});
    }
  }

  void apply_gate(const void* gate, const void* up, void* y) {
    pass_.apply_gate({.activation = model_.activation,
                      .swiglu = model_.swiglu,
                      .gated = model_.gated_mlp(),
                      .gate_up = gate,
                      .up = up,
                      .y = y,
                      .rows = slot_count(),
                      .n = model_.experts.d_mlp});
  }

  void* reserve_rows(DeviceMemory& block, std::int64_t width) {
    return block.reserve_with_slack((slot_count() + kExpertRowUnit) * width * element_,
                                    "the experts");
  }
  std::int64_t slot_count() const { return count_ * model_.experts.per_token; }
  const float* router_weights_of_chunk() const {  // (count, k)
    return weights_.as<float>() + begin_ * model_.experts.per_token;
  }

  const PassContext& pass_;
  const ModelConfig& model_ = pass_.model;
  const DType dtype_ = pass_.dtype;
  const std::int64_t element_ = element_bytes(dtype_);
  int device_;
  bool grouped_;
  std::int64_t gate_up_width_;  // 2 d_mlp, or d_mlp without a gate

  DeviceMemory logits_;   // (rows, experts)
  DeviceMemory weights_;  // (rows, k) float32
  DeviceMemory indices_;  // (rows, k) float32
  std::int64_t rows_ = 0;
  bool routing_edited_ = false;

  std::int64_t begin_ = 0;  // first row of the chunk
  std::int64_t count_ = 0;  // rows of the chunk
  const std::vector<DeviceLinear>* gate_up_weights_ = nullptr;
  BufferContent content_ = BufferContent::inputs;
  DeviceMemory numbers_;                   // the three lists below
  std::int32_t* begins_ = nullptr;         // (experts + 1) first grouped row of each expert
  std::int32_t* slots_ = nullptr;          // (slots) slot of each grouped row
  std::int32_t* places_ = nullptr;         // (slots) grouped row of each slot
  std::vector<std::int32_t> host_begins_;  // begins_ on the host, if experts run one by one
  DeviceMemory wide_;            // (slots, d_model) inputs of gate and up, outputs of down
  DeviceMemory gate_up_;         // (slots, gate_up_width_)
  DeviceMemory gated_;           // (slots, d_mlp) inputs of down
  DeviceMemory gate_;            // (slots, d_mlp) in row order, for observers
  DeviceMemory up_;              // (slots, d_mlp) in row order, for observers
  DeviceMemory shared_gate_up_;  // (count, 2 shared_d_mlp)
  DeviceMemory shared_;          // (count, shared_d_mlp)
};

}  // namespace qkscope::cuda
