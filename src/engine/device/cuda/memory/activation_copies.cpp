#include "engine/device/cuda/memory/activation_copies.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/core/thread_pool.h"
#include "engine/device/cuda/pass_kernels.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kMostPendingBytes = std::int64_t{512} << 20;
// Largest activation, in bytes, that is copied asynchronously without a conversion to float32.
constexpr std::int64_t kMostNativeBytes = std::int64_t{1} << 30;
// Minimum buffer capacity, so that small copies share buffers: allocation synchronizes the GPU.
constexpr std::int64_t kLeastBytes = std::int64_t{2} << 20;
constexpr std::int64_t kPieceBytes = std::int64_t{64} << 20;  // per step of a whole copy
constexpr std::int64_t kCopyBytes = std::int64_t{2} << 20;    // per thread: a huge page

Shape selected_shape(const ActivationView& view, const RowHeadSelection& selected = {}) {
  const auto rows = selected.rows.empty() ? view.rows : std::ssize(selected.rows);
  const auto heads = selected.heads.empty() ? view.heads : std::ssize(selected.heads);
  return view.by_head ? Shape{rows, heads, view.width} : Shape{rows, heads * view.width};
}

// Capacities are powers of two, so that copies of similar sizes share buffers.
std::int64_t round_up_to_buffer_capacity(std::int64_t bytes) {
  return std::max(kLeastBytes,
                  static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes))));
}

// Returns true if two staging buffers of `bytes` bytes, for q and for k, fit into free GPU memory.
bool fits_in_gpu_memory(std::int64_t bytes) {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "ask for the free memory of the GPU");
  return free >= 2 * as_index(round_up_to_buffer_capacity(bytes));
}

std::int64_t rows_per_copy_step(const ActivationView& view) {
  return std::max<std::int64_t>(1, kPieceBytes / kFloatBytes / (view.heads * view.width));
}

}  // namespace

ActivationCopier::ActivationCopier(cudaStream_t compute_stream)
    : compute_stream_(compute_stream), transfers_(compute_stream, kMostPendingBytes) {}

// Kernels read the row and head indices many times, so the indices are copied to the GPU first.
void ActivationCopier::gather_selection(const ActivationView& view,
                                        const RowHeadSelection& selected, UploadBuffer& indices,
                                        float* to) {
  const auto& rows = selected.rows;
  const auto& heads = selected.heads;
  auto numbers = rows;
  numbers.insert(numbers.end(), heads.begin(), heads.end());
  const auto* at = indices.upload(numbers, "row numbers", compute_stream_);
  gather_floats({.x = view.data,
                 .row_stride = view.row_stride,
                 .rows = rows.empty() ? nullptr : at,
                 .heads = heads.empty() ? nullptr : at + rows.size(),
                 .y = to,
                 .row_count = rows.empty() ? view.rows : std::ssize(rows),
                 .head_count = heads.empty() ? view.heads : std::ssize(heads),
                 .width = view.width,
                 .dtype = view.dtype},
                compute_stream_);
}

void ActivationCopier::copy_to_host(const ActivationView& view, const RowHeadSelection& selected,
                                    std::function<void(ConstTensorView)> show) {
  const bool native = selected.native_type && selected.empty();
  const auto dtype = native ? view.dtype : DType::f32;
  const auto shape = selected_shape(view, selected);
  const auto bytes = shape.count() * element_bytes(dtype);
  const bool fits =
      native ? bytes <= kMostNativeBytes && fits_in_gpu_memory(bytes) : bytes <= kMostPendingBytes;
  if (selected.empty() && !fits) {
    deliver_copies();
    show(fetch_activation(view, dtype));
    return;
  }
  // q and k of one layer are in flight together; the host processes them during attention.
  if (native) transfers_.raise_byte_limit(2 * bytes);
  auto* gathered =
      transfers_.begin_transfer(bytes, round_up_to_buffer_capacity(bytes), "captured rows");
  const auto row = view.heads * view.width;
  if (native)
    copy_rows({.x = view.data,
               .x_stride = view.row_stride,
               .y = gathered,
               .y_stride = row,
               .count = view.rows,
               .n = row,
               .dtype = dtype},
              compute_stream_);
  else
    gather_selection(view, selected, transfers_.index_buffer(), reinterpret_cast<float*>(gathered));
  transfers_.enqueue_copy([shape, dtype, show = std::move(show)](const std::byte* values) {
    show({values, dtype, shape});
  });
}

std::shared_ptr<void> ActivationCopier::copy_on_device(const ActivationView& view,
                                                       const RowHeadSelection& selected,
                                                       Shape& shape) {
  shape = selected_shape(view, selected);
  auto memory = std::make_shared<DeviceMemory>();
  auto* to = static_cast<float*>(memory->reserve(shape.count() * kFloatBytes, "an activation"));
  gather_selection(view, selected, indices_, to);
  if (!selected.empty()) check(cudaStreamSynchronize(compute_stream_), "copy an activation");
  return {memory, to};
}

bool ActivationCopier::overwrite_activation(const float* values, const ActivationView& view) {
  // Waits for all streams: the observer may have written the values on a different stream.
  check(cudaDeviceSynchronize(), "wait for an edited activation");
  if (holds_same_floats(values, view)) return false;
  write_float_rows(values, view.data, view.rows, view.heads * view.width, view.row_stride,
                   view.dtype, compute_stream_);
  check(cudaStreamSynchronize(compute_stream_), "take an edited activation");
  return true;
}

bool ActivationCopier::holds_same_floats(const float* values, const ActivationView& view) {
  const auto row = view.heads * view.width;
  const auto step = rows_per_copy_step(view);
  for (std::int64_t begin = 0; begin < view.rows; begin += step) {
    const auto count = std::min(step, view.rows - begin);
    if (!are_bytes_equal(gather_row_range(view, begin, count), values + begin * row,
                         count * row * kFloatBytes, compute_stream_))
      return false;
  }
  return true;
}

const float* ActivationCopier::gather_row_range(const ActivationView& view, std::int64_t begin,
                                                std::int64_t count) {
  const auto row = view.heads * view.width;
  const auto element = element_bytes(view.dtype);
  auto* piece = static_cast<float*>(piece_.reserve(count * row * kFloatBytes, "an activation"));
  gather_floats({.x = static_cast<std::byte*>(view.data) + begin * view.row_stride * element,
                 .row_stride = view.row_stride,
                 .y = piece,
                 .row_count = count,
                 .head_count = view.heads,
                 .width = view.width,
                 .dtype = view.dtype},
                compute_stream_);
  return piece;
}

Tensor ActivationCopier::fetch_activation(const ActivationView& view, DType dtype) {
  Tensor whole(selected_shape(view), dtype);
  const auto element = dtype_size(dtype);
  const auto row = view.heads * view.width;
  const auto row_bytes = as_index(row) * element;
  const auto step = std::min(rows_per_copy_step(view), view.rows);
  auto* host = host_piece_.reserve(step * static_cast<std::int64_t>(row_bytes), "an activation");
  auto* to = whole.view().bytes();
  for (std::int64_t begin = 0; begin < view.rows; begin += step) {
    const auto count = std::min(step, view.rows - begin);
    const bool converts = dtype != view.dtype;
    const auto stride = as_index(view.row_stride) * element;
    const auto* from = converts
                           ? static_cast<const void*>(gather_row_range(view, begin, count))
                           : static_cast<const std::byte*>(view.data) + as_index(begin) * stride;
    check(cudaMemcpy2DAsync(host, row_bytes, from, converts ? row_bytes : stride, row_bytes,
                            as_index(count), cudaMemcpyDeviceToHost, compute_stream_),
          "copy an activation to the host");
    check(cudaStreamSynchronize(compute_stream_), "wait for an activation");
    // Copies with several threads, because the first write to newly allocated memory is slow.
    const auto bytes = count * static_cast<std::int64_t>(row_bytes);
    parallel_for_ranges(bytes, kCopyBytes, [&](std::int64_t first, std::int64_t last) {
      std::memcpy(to + first, static_cast<const std::byte*>(host) + first, as_index(last - first));
    });
    to += bytes;
  }
  return whole;
}

void ActivationCopier::overwrite_activation(ConstTensorView values, const ActivationView& view) {
  const auto row = view.heads * view.width;
  const auto step = std::min(rows_per_copy_step(view), view.rows);
  auto* piece = static_cast<float*>(piece_.reserve(step * row * kFloatBytes, "an activation"));
  auto* host = host_piece_.reserve(step * row * kFloatBytes, "an activation");
  const auto element = element_bytes(view.dtype);
  for (std::int64_t begin = 0; begin < view.rows; begin += step) {
    const auto count = std::min(step, view.rows - begin);
    const auto bytes = as_index(count * row * kFloatBytes);
    std::memcpy(host, values.data<float>() + begin * row, bytes);
    check(cudaMemcpyAsync(piece, host, bytes, cudaMemcpyHostToDevice, compute_stream_),
          "copy an edited activation to the GPU");
    write_float_rows(piece, static_cast<std::byte*>(view.data) + begin * view.row_stride * element,
                     count, row, view.row_stride, view.dtype, compute_stream_);
    check(cudaStreamSynchronize(compute_stream_), "wait for an edited activation");
  }
}

}  // namespace qkscope::cuda
