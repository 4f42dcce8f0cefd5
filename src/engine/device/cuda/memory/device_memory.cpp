#include "engine/device/cuda/memory/device_memory.h"

#include <cstring>
#include <utility>

#include "base/core/error.h"
#include "base/core/text.h"

namespace qkscope::cuda {
namespace {

// Minimum capacity of an UploadBuffer: uploads vary in length, and growing synchronizes the GPU.
constexpr std::int64_t kLeastUploadBytes = std::int64_t{16} << 10;
constexpr std::size_t kMostPending = 16;  // transfers in flight; more would only cost memory

}  // namespace

void check(cudaError_t status, const char* operation) {
  if (status == cudaSuccess) return;
  throw_failure("CUDA: {} failed: {} ({})", operation, cudaGetErrorString(status),
                cudaGetErrorName(status));
}

template <>
void GrowableBuffer<DeviceMemoryDeleter>::allocate(std::int64_t bytes, const char* what) {
  reset();
  void* memory = nullptr;
  const auto size = as_index(std::max<std::int64_t>(bytes, 1));
  const auto status = cudaMalloc(&memory, size);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, which is handled here
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "ask for free memory");
    throw_failure(
        "CUDA: out of memory: {} need {}, {} of {} are left on the GPU; take shorter texts, "
        "fewer documents at a time, or let the weights stream (--device-memory)",
        what, format_bytes(size), format_bytes(free), format_bytes(total));
  }
  check(status, "allocate device memory");
  memory_.reset(memory);
  bytes_ = bytes;
}

template <>
void GrowableBuffer<PinnedMemoryDeleter>::allocate(std::int64_t bytes, const char* what) {
  reset();
  void* memory = nullptr;
  const auto size = as_index(std::max<std::int64_t>(bytes, 1));
  const auto status = cudaHostAlloc(&memory, size, cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw_failure("out of memory: {} need {} of pinned host memory", what, format_bytes(size));
  }
  check(status, "allocate pinned host memory");
  memory_.reset(memory);
  bytes_ = bytes;
}

std::size_t max_shared_memory_bytes() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "ask the GPU");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "ask the GPU");
  return as_index(bytes);
}

bool GpuEvent::has_occurred() const {
  const auto status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  check(status, "look at an event");
  return true;
}

double GpuEvent::seconds_since(const GpuEvent& earlier) const {
  float milliseconds = 0.0f;
  check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "time two events");
  return static_cast<double>(milliseconds) / 1000.0;
}

void UploadBuffer::upload_bytes(std::span<const std::byte> values, const char* what,
                                cudaStream_t stream) {
  const auto bytes = static_cast<std::int64_t>(values.size());
  if (copied_)
    copied_->wait();
  else
    copied_.emplace();
  const auto room = std::max(bytes, kLeastUploadBytes);
  device_.reserve_with_slack(room, what);
  if (values.empty()) return;
  std::memcpy(host_.reserve_with_slack(room, what), values.data(), values.size());
  check(
      cudaMemcpyAsync(device_.data(), host_.data(), values.size(), cudaMemcpyHostToDevice, stream),
      "copy row numbers to the GPU");
  copied_->record(stream);
}

std::byte* HostTransfers::begin_transfer(std::int64_t bytes, std::int64_t capacity,
                                         const char* what) {
  while (!pending_.empty() && pending_.front()->arrived.has_occurred()) deliver_oldest();
  while (!pending_.empty() &&
         (pending_.size() >= kMostPending || pending_bytes_ + bytes > most_bytes_))
    deliver_oldest();
  // Reuses the smallest buffer that fits, because an allocation synchronizes the GPU.
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it)
    if ((*it)->device.bytes() >= bytes &&
        (best == idle_.end() || (*it)->device.bytes() < (*best)->device.bytes()))
      best = it;
  if (best == idle_.end()) {
    next_ = std::make_unique<HostTransfer>();
    next_->device.reserve(capacity, what);
    next_->host.reserve(capacity, what);
  } else {
    next_ = std::move(*best);
    idle_.erase(best);
  }
  next_->bytes = bytes;
  return next_->device.as<std::byte>();
}

void HostTransfers::enqueue_copy(DeliveryCallback deliver, cudaStream_t writer) {
  QKSCOPE_ASSERT(next_ != nullptr);
  auto& transfer = *next_;
  transfer.deliver = std::move(deliver);
  transfer.filled.record(writer);
  transfer.filled.make_stream_wait(copies_);
  check(cudaMemcpyAsync(transfer.host.data(), transfer.device.data(), as_index(transfer.bytes),
                        cudaMemcpyDeviceToHost, copies_),
        "copy results to the host");
  transfer.arrived.record(copies_);
  pending_bytes_ += transfer.bytes;
  pending_.push_back(std::move(next_));
}

void HostTransfers::deliver_oldest() {
  auto transfer = std::move(pending_.front());
  pending_.pop_front();
  pending_bytes_ -= transfer->bytes;
  transfer->arrived.wait();
  std::exchange(transfer->deliver, nullptr)(transfer->host.as<std::byte>());
  idle_.push_back(std::move(transfer));
}

void HostTransfers::deliver_all() {
  while (!pending_.empty()) deliver_oldest();
}

void HostTransfers::discard_all() {
  for (auto& transfer : pending_) {
    transfer->arrived.wait();
    transfer->deliver = nullptr;
    idle_.push_back(std::move(transfer));
  }
  pending_.clear();
  pending_bytes_ = 0;
}

}  // namespace qkscope::cuda
