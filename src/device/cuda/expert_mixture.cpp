#include "device/cuda/expert_mixture.h"

#include "core/error.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/experts.h"
#include "device/cuda/gate.h"
#include "device/cuda/row_kernels.h"
#include "device/memory_plan.h"

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

// Each expert's rows are filled up to a multiple of kExpertRowUnit, so that products come in few
// shapes; the rows that fill up are copies whose results nobody reads. The host waits for the
// counts alone.
void ExpertMixture::sort(std::int64_t begin, std::int64_t count) {
  const auto& experts = model_.experts;
  begin_ = begin;
  count_ = count;
  const auto most = most_sorted_rows(slots(), experts.count);
  const auto number_bytes = static_cast<std::int64_t>(sizeof(std::int32_t));
  row_of_ = static_cast<std::int32_t*>(
      numbers_.reserve_roomy((2 * most + slots() + experts.count) * number_bytes, "the experts"));
  slot_of_ = row_of_ + most;
  place_of_ = slot_of_ + most;
  auto* counts = place_of_ + slots();
  sort_by_expert({.indices = indices_.as<float>() + begin * experts.per_token,
                  .rows = count,
                  .k = experts.per_token,
                  .experts = experts.count,
                  .unit = kExpertRowUnit,
                  .first_row = begin,
                  .counts = counts,
                  .row_of = row_of_,
                  .slot_of = slot_of_,
                  .place_of = place_of_},
                 stream_);
  auto* fetched =
      static_cast<std::int32_t*>(counts_.reserve(experts.count * number_bytes, "the experts"));
  check(cudaMemcpyAsync(fetched, counts, static_cast<std::size_t>(experts.count * number_bytes),
                        cudaMemcpyDeviceToHost, stream_),
        "copy the experts' counts from the GPU");
  check(cudaStreamSynchronize(stream_), "sort rows by expert");
  list_spans(std::span(fetched, static_cast<std::size_t>(experts.count)));
}

void ExpertMixture::list_spans(std::span<const std::int32_t> counts) {
  spans_.clear();
  padded_ = 0;
  std::int64_t counted = 0;
  for (const auto used : counts) {
    const auto rows = filled_up(used, kExpertRowUnit);
    spans_.push_back({padded_, rows});
    padded_ += rows;
    counted += used;
  }
  if (counted == slots()) return;
  const auto chosen = copies_.fetch(view(Buffer::expert_indices, rows_));
  rows_by_expert(chosen.view().rows(begin_, begin_ + count_), model_.experts.count);  // says why
  failure("experts: {} of {} chosen experts were found", counted, slots());
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
  sort(begin, count);
  const auto width = model_.experts.d_mlp;
  const auto element = element_bytes(dtype_);
  take(x, model_.d_model, row_of_,
       sorted_.reserve_roomy(padded_ * model_.d_model * element, "the experts"), padded_,
       model_.d_model);
  multiply(weights, model_.d_model, 2 * width);
  take(made_.data(), 2 * width, place_of_,
       gate_.reserve_roomy(slots() * width * element, "the experts"), slots(), width);
  take(at(made_, width), 2 * width, place_of_,
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
  take(gate_.data(), width, slot_of_,
       sorted_.reserve_roomy(padded_ * width * element_bytes(dtype_), "the experts"), padded_,
       width);
  multiply(weights, width, model_.d_model);
  combine_experts({.x = made_.data(),
                   .weights = weights_.as<float>() + begin_ * model_.experts.per_token,
                   .places = place_of_,
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
