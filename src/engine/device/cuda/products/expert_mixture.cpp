#include "engine/device/cuda/products/expert_mixture.h"

#include <algorithm>

#include "engine/device/cuda/cuda_error.h"
#include "engine/device/cuda/products/experts.h"
#include "engine/device/cuda/products/gate.h"
#include "engine/device/cuda/row_kernels.h"
#include "engine/device/memory_plan.h"

namespace qkscope::cuda {
namespace {

std::int64_t element_bytes(DType dtype) {
  return static_cast<std::int64_t>(dtype_size(dtype));
}

}  // namespace

void* ExpertMixture::at(const DeviceBlock& block, std::int64_t element) const {
  return block.as<std::byte>() + element * element_bytes(dtype_);
}

void ExpertMixture::project_router(const void* x, std::int64_t rows, const DeviceLinear& router) {
  const auto experts = model_.experts.count;
  products_.multiply({.x = x,
                      .x_stride = model_.d_model,
                      .weight = router.weight,
                      .bias = router.bias,
                      .y = logits_.reserve(rows * experts * element_bytes(dtype_), "the router"),
                      .y_stride = experts,
                      .rows = rows,
                      .in = model_.d_model,
                      .out = experts});
}

void ExpertMixture::choose(std::int64_t rows) {
  rows_ = rows;
  const auto bytes = rows * model_.experts.per_token * element_bytes(DType::f32);
  choose_experts({.logits = logits_.data(),
                  .weights = static_cast<float*>(weights_.reserve(bytes, "the router")),
                  .indices = static_cast<float*>(indices_.reserve(bytes, "the router")),
                  .rows = rows,
                  .experts = model_.experts.count,
                  .k = model_.experts.per_token,
                  .normalized = model_.experts.normalized,
                  .dtype = dtype_},
                 stream_);
}

// Pads each expert's rows to a multiple of kExpertRowUnit, so that the products have few distinct
// shapes. Padding rows are copies whose results are never read.
void ExpertMixture::sort(std::int64_t begin, std::int64_t count) {
  const auto k = model_.experts.per_token;
  begin_ = begin;
  count_ = count;
  const auto by_expert =
      rows_by_expert(chosen_.view().rows(begin, begin + count), model_.experts.count);
  spans_.clear();
  padded_ = 0;
  for (std::int64_t expert = 0; expert < model_.experts.count; ++expert) {
    const auto used = std::ssize(by_expert.of(expert));
    const auto rows = (used + kExpertRowUnit - 1) / kExpertRowUnit * kExpertRowUnit;
    spans_.push_back({padded_, rows});
    padded_ += rows;
  }
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(2 * padded_ + slots()));
  const auto places = numbers.begin() + 2 * padded_;
  std::fill(numbers.begin(), numbers.begin() + padded_, static_cast<std::int32_t>(begin));
  for (std::int64_t expert = 0; expert < model_.experts.count; ++expert) {
    auto place = spans_[static_cast<std::size_t>(expert)].begin;
    for (const auto slot : by_expert.of(expert)) {
      numbers[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(begin + slot / k);
      numbers[static_cast<std::size_t>(padded_ + place)] = static_cast<std::int32_t>(slot);
      places[slot] = static_cast<std::int32_t>(place++);
    }
  }
  numbers_.upload(std::span<const std::int32_t>(numbers), "the experts", stream_);
}

void ExpertMixture::take(const void* from, std::int64_t stride, const std::int32_t* rows, void* to,
                         std::int64_t count, std::int64_t n) {
  take_rows({.x = from,
             .row_stride = stride,
             .rows = rows,
             .y = to,
             .count = count,
             .n = n,
             .dtype = dtype_},
            stream_);
}

void ExpertMixture::multiply(const DeviceExperts& weights, std::int64_t in, std::int64_t out) {
  made_.reserve_roomy(padded_ * out * element_bytes(dtype_), "the experts");
  for (std::size_t expert = 0; expert < spans_.size(); ++expert) {
    const auto number = static_cast<std::int64_t>(expert);
    const auto [begin, rows] = spans_[expert];
    const auto [weight, bias] = weights.of(number);
    products_.multiply({.x = at(sorted_, begin * in),
                        .x_stride = in,
                        .weight = weight,
                        .bias = bias,
                        .y = at(made_, begin * out),
                        .y_stride = out,
                        .rows = rows,
                        .in = in,
                        .out = out});
  }
}

void ExpertMixture::project_gate_up(const void* x, std::int64_t begin, std::int64_t count,
                                    const DeviceExperts& weights) {
  if (begin == 0) chosen_ = copies_.fetch(view(Buffer::expert_indices, rows_));
  sort(begin, count);
  const auto width = model_.experts.d_mlp;
  const auto element = element_bytes(dtype_);
  const auto* rows = numbers_.as<std::int32_t>();
  const auto* places = rows + 2 * padded_;
  take(x, model_.d_model, rows,
       sorted_.reserve_roomy(padded_ * model_.d_model * element, "the experts"), padded_,
       model_.d_model);
  multiply(weights, model_.d_model, 2 * width);
  take(made_.data(), 2 * width, places,
       gate_.reserve_roomy(slots() * width * element, "the experts"), slots(), width);
  take(at(made_, width), 2 * width, places,
       up_.reserve_roomy(slots() * width * element, "the experts"), slots(), width);
}

void ExpertMixture::gate() {
  cuda::gate({.activation = model_.activation,
              .swiglu = model_.swiglu,
              .gate_up = gate_.data(),
              .up = up_.data(),
              .y = gate_.data(),
              .rows = slots(),
              .n = model_.experts.d_mlp,
              .dtype = dtype_},
             stream_);
}

void ExpertMixture::project_down(const DeviceExperts& weights, void* y) {
  const auto width = model_.experts.d_mlp;
  const auto* slots_of_rows = numbers_.as<std::int32_t>() + padded_;
  take(gate_.data(), width, slots_of_rows,
       sorted_.reserve_roomy(padded_ * width * element_bytes(dtype_), "the experts"), padded_,
       width);
  multiply(weights, width, model_.d_model);
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

DeviceView ExpertMixture::view(Buffer buffer, std::int64_t rows) const {
  const auto& experts = model_.experts;
  const auto plain = [&](const DeviceBlock& block, std::int64_t width, DType dtype) {
    return DeviceView{block.data(), width, rows, 1, width, false, dtype};
  };
  const auto wide = [&](const DeviceBlock& block) {
    return DeviceView{block.data(),  experts.per_token * experts.d_mlp,
                      count_,        experts.per_token,
                      experts.d_mlp, true,
                      dtype_};
  };
  switch (buffer) {
    case Buffer::router_logits:
      return plain(logits_, experts.count, dtype_);
    case Buffer::expert_weights:
      return plain(weights_, experts.per_token, DType::f32);
    case Buffer::expert_indices:
      return plain(indices_, experts.per_token, DType::f32);
    case Buffer::gate:
      return wide(gate_);
    default:
      return wide(up_);
  }
}

}  // namespace qkscope::cuda
