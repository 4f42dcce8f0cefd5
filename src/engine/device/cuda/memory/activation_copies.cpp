#include "engine/device/cuda/memory/activation_copies.h"

#include <algorithm>
#include <cstring>

#include "engine/device/cuda/compare.h"
#include "engine/device/cuda/cuda_error.h"
#include "engine/device/cuda/row_kernels.h"

namespace qkscope::cuda {
namespace {

// Limit on pending copies to the host; beyond it the oldest copy is awaited first.
constexpr std::int64_t kMostPendingBytes = std::int64_t{512} << 20;
constexpr std::size_t kMostPending = 16;
// Smallest allocation of a copy. The number of selected heads varies between layers, and growing an
// allocation synchronizes the GPU.
constexpr std::int64_t kLeastBytes = std::int64_t{2} << 20;
constexpr std::int64_t kLeastIndexBytes = std::int64_t{16} << 10;
constexpr std::int64_t kPiece = std::int64_t{64} << 20;
constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

Shape shape_of(const DeviceView& view, std::int64_t rows, std::int64_t heads) {
  return view.by_head ? Shape{rows, heads, view.width} : Shape{rows, heads * view.width};
}

std::size_t bytes_of(std::int64_t floats) {
  return static_cast<std::size_t>(floats * kFloat);
}

// Number of rows copied at a time when a whole activation moves.
std::int64_t rows_of_piece(const DeviceView& view) {
  return std::max<std::int64_t>(1, kPiece / kFloat / (view.heads * view.width));
}

}  // namespace

std::unique_ptr<ActivationCopies::HostCopy> ActivationCopies::idle_copy() {
  if (idle_.empty()) return std::make_unique<HostCopy>();
  auto copy = std::move(idle_.back());
  idle_.pop_back();
  return copy;
}

std::int64_t ActivationCopies::pending_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& copy : pending_) bytes += copy->shape.count() * kFloat;
  return bytes;
}

void ActivationCopies::gather_chosen(const DeviceView& view, std::span<const std::int32_t> rows,
                                     std::span<const std::int32_t> heads, Indices& indices,
                                     float* to) {
  const auto bytes = (rows.size() + heads.size()) * sizeof(std::int32_t);
  const auto room = std::max(static_cast<std::int64_t>(bytes), kLeastIndexBytes);
  auto* on_host = static_cast<std::int32_t*>(indices.host.reserve_roomy(room, "row numbers"));
  std::copy(rows.begin(), rows.end(), on_host);
  std::copy(heads.begin(), heads.end(), on_host + rows.size());
  const auto* at =
      static_cast<const std::int32_t*>(indices.device.reserve_roomy(room, "row numbers"));
  if (bytes > 0)
    check(cudaMemcpyAsync(indices.device.data(), on_host, bytes, cudaMemcpyHostToDevice, compute_),
          "copy row numbers to the GPU");
  gather({.x = view.data,
          .row_stride = view.row_stride,
          .rows = rows.empty() ? nullptr : at,
          .heads = heads.empty() ? nullptr : at + rows.size(),
          .y = to,
          .row_count = rows.empty() ? view.rows : static_cast<std::int64_t>(rows.size()),
          .head_count = heads.empty() ? view.heads : static_cast<std::int64_t>(heads.size()),
          .width = view.width,
          .dtype = view.dtype},
         compute_);
}

std::shared_ptr<void> ActivationCopies::copy_on_device(const DeviceView& view,
                                                       std::span<const std::int32_t> rows,
                                                       std::span<const std::int32_t> heads,
                                                       Shape& shape) {
  shape = shape_of(view, rows.empty() ? view.rows : static_cast<std::int64_t>(rows.size()),
                   heads.empty() ? view.heads : static_cast<std::int64_t>(heads.size()));
  auto memory = std::make_shared<DeviceBlock>();
  auto* to = static_cast<float*>(memory->reserve(shape.count() * kFloat, "an activation"));
  gather_chosen(view, rows, heads, indices_, to);
  if (!rows.empty() || !heads.empty())  // the pinned indices are overwritten by the next call
    check(cudaStreamSynchronize(compute_), "copy an activation");
  return {memory, to};
}

bool ActivationCopies::put(const float* values, const DeviceView& view) {
  // The observer wrote the values on a stream of its own.
  check(cudaDeviceSynchronize(), "wait for an edited activation");
  if (has_values(values, view)) return false;
  put_back(values, view.data, view.rows, view.heads * view.width, view.row_stride, view.dtype,
           compute_);
  check(cudaStreamSynchronize(compute_), "take an edited activation");
  return true;
}

bool ActivationCopies::has_values(const float* values, const DeviceView& view) {
  const auto row = view.heads * view.width;
  const auto step = rows_of_piece(view);
  for (std::int64_t begin = 0; begin < view.rows; begin += step) {
    const auto count = std::min(step, view.rows - begin);
    if (!same_bytes(gather_piece(view, begin, count), values + begin * row, count * row * kFloat,
                    compute_))
      return false;
  }
  return true;
}

void ActivationCopies::copy_to_host(const DeviceView& view, std::span<const std::int32_t> rows,
                                    std::span<const std::int32_t> heads, Show show) {
  const auto row_count = rows.empty() ? view.rows : static_cast<std::int64_t>(rows.size());
  const auto head_count = heads.empty() ? view.heads : static_cast<std::int64_t>(heads.size());
  const auto count = row_count * head_count * view.width;
  if (rows.empty() && heads.empty() && count * kFloat > kMostPendingBytes) {
    show_all();
    show(fetch(view));
    return;
  }
  show_arrived();
  while (!pending_.empty() &&
         (pending_.size() >= kMostPending || pending_bytes() + count * kFloat > kMostPendingBytes))
    show_first();

  auto copy = idle_copy();
  const auto room = std::max(count * kFloat, kLeastBytes);
  auto* gathered = static_cast<float*>(copy->gathered.reserve_roomy(room, "captured rows"));
  auto* host = copy->host.reserve_roomy(room, "captured rows");
  gather_chosen(view, rows, heads, copy->indices, gathered);
  copy->is_gathered.record(compute_);
  copy->is_gathered.make_stream_wait(copies_);
  check(cudaMemcpyAsync(host, gathered, bytes_of(count), cudaMemcpyDeviceToHost, copies_),
        "copy captured rows to the host");
  copy->arrived.record(copies_);
  copy->shape = shape_of(view, row_count, head_count);
  copy->show = std::move(show);
  pending_.push_back(std::move(copy));
}

void ActivationCopies::show_first() {
  auto copy = std::move(pending_.front());
  pending_.pop_front();
  copy->arrived.wait();
  const auto show = std::move(copy->show);
  const ConstTensorView view(static_cast<const std::byte*>(copy->host.data()), DType::f32,
                             copy->shape);
  show(view);
  idle_.push_back(std::move(copy));
}

void ActivationCopies::show_arrived() {
  while (!pending_.empty() && pending_.front()->arrived.done()) show_first();
}

void ActivationCopies::show_all() {
  while (!pending_.empty()) show_first();
}

void ActivationCopies::drop_all() {
  for (auto& copy : pending_) {
    copy->arrived.wait();
    copy->show = nullptr;
    idle_.push_back(std::move(copy));
  }
  pending_.clear();
}

const float* ActivationCopies::gather_piece(const DeviceView& view, std::int64_t begin,
                                            std::int64_t count) {
  const auto row = view.heads * view.width;
  const auto element = static_cast<std::int64_t>(dtype_size(view.dtype));
  auto* piece = static_cast<float*>(piece_.reserve(count * row * kFloat, "an activation"));
  gather({.x = static_cast<std::byte*>(view.data) + begin * view.row_stride * element,
          .row_stride = view.row_stride,
          .y = piece,
          .row_count = count,
          .head_count = view.heads,
          .width = view.width,
          .dtype = view.dtype},
         compute_);
  return piece;
}

Tensor ActivationCopies::fetch(const DeviceView& view) {
  Tensor whole(shape_of(view, view.rows, view.heads));
  const auto row = view.heads * view.width;
  const auto step = std::min(rows_of_piece(view), view.rows);
  auto* host = host_piece_.reserve(step * row * kFloat, "an activation");
  for (std::int64_t begin = 0; begin < view.rows; begin += step) {
    const auto count = std::min(step, view.rows - begin);
    const auto* piece = gather_piece(view, begin, count);
    check(cudaMemcpyAsync(host, piece, bytes_of(count * row), cudaMemcpyDeviceToHost, compute_),
          "copy an activation to the host");
    check(cudaStreamSynchronize(compute_), "wait for an activation");
    std::memcpy(whole.data<float>() + begin * row, host, bytes_of(count * row));
  }
  return whole;
}

void ActivationCopies::put(const Tensor& values, const DeviceView& view) {
  const auto row = view.heads * view.width;
  const auto step = std::min(rows_of_piece(view), view.rows);
  auto* piece = static_cast<float*>(piece_.reserve(step * row * kFloat, "an activation"));
  auto* host = host_piece_.reserve(step * row * kFloat, "an activation");
  const auto element = static_cast<std::int64_t>(dtype_size(view.dtype));
  for (std::int64_t begin = 0; begin < view.rows; begin += step) {
    const auto count = std::min(step, view.rows - begin);
    std::memcpy(host, values.data<float>() + begin * row, bytes_of(count * row));
    check(cudaMemcpyAsync(piece, host, bytes_of(count * row), cudaMemcpyHostToDevice, compute_),
          "copy an edited activation to the GPU");
    put_back(piece, static_cast<std::byte*>(view.data) + begin * view.row_stride * element, count,
             row, view.row_stride, view.dtype, compute_);
    check(cudaStreamSynchronize(compute_), "wait for an edited activation");
  }
}

}  // namespace qkscope::cuda
