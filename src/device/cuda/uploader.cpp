#include "device/cuda/uploader.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/thread_pool.h"
#include "device/cuda/row_kernels.h"
#include "device/cuda/status.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kChunk = std::int64_t{32} << 20;
constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // of one thread

void copy_in_parallel(std::byte* to, const std::byte* from, std::int64_t bytes) {
  parallel_ranges(bytes, kPiece, [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

ConstTensorView view_of(std::span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), DType::f32,
          Shape{static_cast<std::int64_t>(values.size())}};
}

}  // namespace

Uploader::Uploader(DType dtype, cudaStream_t stream) : dtype_(dtype), stream_(stream) {}

void Uploader::copy(ConstTensorView source, void* destination, DType to, float scale) {
  QKSCOPE_ASSERT(source.is_contiguous());
  const bool as_it_is = source.dtype() == to && scale == 1.0f;
  const auto from_size = static_cast<std::int64_t>(dtype_size(source.dtype()));
  const auto to_size = static_cast<std::int64_t>(dtype_size(to));
  const auto chunk = kChunk / from_size;
  for (std::int64_t begin = 0; begin < source.size(); begin += chunk) {
    const auto count = std::min(chunk, source.size() - begin);
    const auto bytes = count * from_size;
    auto& buffer = buffers_[next_];
    next_ = 1 - next_;
    buffer.done.wait();
    auto* host = static_cast<std::byte*>(buffer.host.reserve(kChunk, "weights on their way"));
    copy_in_parallel(host, source.bytes() + begin * from_size, bytes);
    void* arrival = static_cast<std::byte*>(destination) + begin * to_size;
    void* first = as_it_is ? arrival : buffer.device.reserve(kChunk, "weights that are converted");
    check(cudaMemcpyAsync(first, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                          stream_),
          "copy weights to the card");
    if (!as_it_is) convert(first, source.dtype(), arrival, to, count, scale, stream_);
    buffer.done.record(stream_);
  }
}

void Uploader::matrix(const WeightMatrix& matrix, void* destination) {
  copy(matrix.values, destination, dtype_, matrix.scale);
}

void Uploader::vector(std::span<const float> values, void* destination) {
  copy(view_of(values), destination, dtype_, 1.0f);
}

void Uploader::floats(std::span<const float> values, float* destination) {
  copy(view_of(values), destination, DType::f32, 1.0f);
}

void Uploader::wait() {
  for (const auto& buffer : buffers_) buffer.done.wait();
}

}  // namespace qkscope::cuda
