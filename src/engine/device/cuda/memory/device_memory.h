// RAII wrappers for GPU memory, pinned memory, streams and events; transfers; CUDA error checks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <cuda_runtime.h>

#include "base/core/convert.h"
#include "base/core/numbers.h"

namespace qkscope::cuda {

// Throws unless `status` is success. `operation` names the step: "copy weights to the device".
void check(cudaError_t status, const char* operation);

constexpr std::int64_t kFloatBytes = sizeof(float);

// Bytes of one element, signed because it is multiplied by signed element counts.
inline std::int64_t element_bytes(DType dtype) {
  return static_cast<std::int64_t>(dtype_size(dtype));
}

// Returns whether rows that begin at `data` can be read 16 bytes at a time.
inline bool is_16_byte_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

inline void check_launch(const char* operation) {
  check(cudaGetLastError(), operation);
}

struct DeviceMemoryDeleter {
  void operator()(void* memory) const { cudaFree(memory); }
};
struct PinnedMemoryDeleter {
  void operator()(void* memory) const { cudaFreeHost(memory); }
};

// A buffer that grows on demand; growing discards its contents. `Free` is the deleter.
template <typename Free>
class GrowableBuffer {
 public:
  // Grows the buffer to at least `bytes` bytes. `what` names it in the out-of-memory message.
  void* reserve(std::int64_t bytes, const char* what) {
    if (bytes > bytes_ || !memory_) allocate(bytes, what);
    return memory_.get();
  }
  // Like reserve(), with 25 % headroom, because allocation synchronizes the GPU.
  void* reserve_with_slack(std::int64_t bytes, const char* what) {
    if (bytes > bytes_ || !memory_) allocate(bytes + bytes / 4, what);
    return memory_.get();
  }
  void* data() const { return memory_.get(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }
  std::int64_t bytes() const { return bytes_; }
  void reset() {
    memory_.reset();
    bytes_ = 0;
  }

 private:
  void allocate(std::int64_t bytes, const char* what);

  std::unique_ptr<void, Free> memory_;
  std::int64_t bytes_ = 0;
};

using DeviceMemory = GrowableBuffer<DeviceMemoryDeleter>;
// Page-locked host memory that the GPU can read and write.
using PinnedMemory = GrowableBuffer<PinnedMemoryDeleter>;

// Largest amount of shared memory, in bytes, that one block can request.
std::size_t max_shared_memory_bytes();

class GpuStream {
 public:
  GpuStream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
  }
  ~GpuStream() { cudaStreamDestroy(stream_); }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor)

 private:
  cudaStream_t stream_ = nullptr;
};

class GpuEvent {
 public:
  // By default, events record no time; seconds_since() needs two events with cudaEventDefault.
  explicit GpuEvent(unsigned flags = cudaEventDisableTiming) {
    check(cudaEventCreateWithFlags(&event_, flags), "create an event");
  }
  ~GpuEvent() { cudaEventDestroy(event_); }
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "record an event"); }
  // Blocks the host until the event has occurred.
  void wait() const { check(cudaEventSynchronize(event_), "wait for the device"); }
  void make_stream_wait(cudaStream_t stream) const {
    check(cudaStreamWaitEvent(stream, event_, 0), "order two streams");
  }
  bool has_occurred() const;
  double seconds_since(const GpuEvent& earlier) const;  // both must have occurred

 private:
  cudaEvent_t event_ = nullptr;
};

// A small array that the host writes for every batch: pinned memory and its copy on the GPU.
class UploadBuffer {
 public:
  // Copies `values` to the GPU in stream order; the caller may destroy them on return. Waits only
  // if the previous upload of this buffer is still in flight.
  template <typename T>
  const T* upload(const std::vector<T>& values, const char* what, cudaStream_t stream) {
    count_ = std::ssize(values);
    upload_bytes(std::as_bytes(std::span(values)), what, stream);
    return as<T>();
  }
  template <typename T>
  T* as() const {
    return device_.as<T>();
  }
  std::int64_t count() const { return count_; }  // values of the last upload

 private:
  void upload_bytes(std::span<const std::byte> values, const char* what, cudaStream_t stream);

  PinnedMemory host_;
  DeviceMemory device_;
  std::int64_t count_ = 0;
  std::optional<GpuEvent> copied_;  // created on first use, when the GPU is selected
};

// Transfers of results to the host, in order: a buffer is filled on the GPU in stream order, copied
// while later layers run, and delivered to its consumer on arrival.
class HostTransfers {
 public:
  using DeliveryCallback = std::function<void(const std::byte*)>;

  // Limits the bytes in flight to `most_bytes`: begin_transfer() waits for the oldest transfers.
  HostTransfers(cudaStream_t compute_stream, std::int64_t most_bytes)
      : compute_stream_(compute_stream), most_bytes_(most_bytes) {}
  void raise_byte_limit(std::int64_t bytes) { most_bytes_ = std::max(most_bytes_, bytes); }

  // Starts a transfer. Returns an idle GPU buffer that fits, or a new one of `capacity` bytes.
  std::byte* begin_transfer(std::int64_t bytes, std::int64_t capacity, const char* what);
  // Buffer of indices for the kernel that fills the memory returned by begin_transfer().
  UploadBuffer& index_buffer() { return next_->indices; }
  // Starts copying the data written by the compute stream, or by `writer`, to the host; calls
  // `deliver` on arrival.
  void enqueue_copy(DeliveryCallback deliver) { enqueue_copy(std::move(deliver), compute_stream_); }
  void enqueue_copy(DeliveryCallback deliver, cudaStream_t writer);

  void deliver_all();
  void discard_all();  // waits for the copies and discards them

 private:
  struct HostTransfer {
    UploadBuffer indices;
    DeviceMemory device;
    PinnedMemory host;
    std::int64_t bytes = 0;
    GpuEvent filled;
    GpuEvent arrived;
    DeliveryCallback deliver;
  };

  void deliver_oldest();

  cudaStream_t compute_stream_;
  std::int64_t most_bytes_;
  GpuStream copies_;
  std::unique_ptr<HostTransfer> next_;
  std::deque<std::unique_ptr<HostTransfer>> pending_;  // in the order of the calls
  std::int64_t pending_bytes_ = 0;
  std::vector<std::unique_ptr<HostTransfer>> idle_;
};

}  // namespace qkscope::cuda
