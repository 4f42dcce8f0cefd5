#include "engine/device/cuda/memory/device_memory.h"

#include <algorithm>
#include <cstring>

#include "base/core/error.h"
#include "base/core/text.h"
#include "engine/device/cuda/cuda_error.h"

namespace qkscope::cuda {
namespace {

std::string bytes_text(std::size_t bytes) {
  return format_bytes(static_cast<std::uint64_t>(bytes));
}

}  // namespace

template <>
void Block<FreeDevice>::allocate(std::int64_t bytes, const char* what) {
  reset();
  void* memory = nullptr;
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  const auto status = cudaMalloc(&memory, size);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, which is handled here
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "ask for free memory");
    failure(
        "CUDA: out of memory: {} need {}, {} of {} are left on the GPU; take shorter texts, "
        "fewer documents at a time, or let the weights stream (--device-memory)",
        what, bytes_text(size), bytes_text(free), bytes_text(total));
  }
  check(status, "allocate device memory");
  memory_.reset(memory);
  bytes_ = bytes;
}

template <>
void Block<FreePinned>::allocate(std::int64_t bytes, const char* what) {
  reset();
  void* memory = nullptr;
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  const auto status = cudaHostAlloc(&memory, size, cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    failure("out of memory: {} need {} of pinned host memory", what, bytes_text(size));
  }
  check(status, "allocate pinned host memory");
  memory_.reset(memory);
  bytes_ = bytes;
}

std::size_t shared_memory_limit() {
  int device = 0;
  int bytes = 0;
  check(cudaGetDevice(&device), "ask the GPU");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "ask the GPU");
  return static_cast<std::size_t>(bytes);
}

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
}

Event::Event() {
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "create an event");
}

void Event::record(cudaStream_t stream) {
  check(cudaEventRecord(event_, stream), "record an event");
}

void Event::wait() const {
  check(cudaEventSynchronize(event_), "wait for the device");
}

void Event::make_stream_wait(cudaStream_t stream) const {
  check(cudaStreamWaitEvent(stream, event_, 0), "order two streams");
}

void UploadBuffer::copy(std::span<const std::byte> values, const char* what, cudaStream_t stream) {
  const auto bytes = static_cast<std::int64_t>(values.size());
  if (copied_)
    copied_->wait();
  else
    copied_.emplace();
  device_.reserve_roomy(bytes, what);
  if (values.empty()) return;
  std::memcpy(host_.reserve_roomy(bytes, what), values.data(), values.size());
  check(
      cudaMemcpyAsync(device_.data(), host_.data(), values.size(), cudaMemcpyHostToDevice, stream),
      "copy row numbers to the GPU");
  copied_->record(stream);
}

bool Event::done() const {
  const auto status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  check(status, "look at an event");
  return true;
}

}  // namespace qkscope::cuda
