// Memory, streams and events of the GPU, owned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cuda_runtime.h>

namespace qkscope::cuda {

struct FreeDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};
struct FreePinned {
  void operator()(void* memory) const { cudaFreeHost(memory); }
};

// Grows when more is asked for and never shrinks; what it held is lost then. `Free` says where it
// lives.
template <typename Free>
class Block {
 public:
  // At least this many bytes. `what` is for the message when there are not so many.
  void* reserve(std::int64_t bytes, const char* what) {
    if (bytes > bytes_ || !memory_) allocate(bytes, what);
    return memory_.get();
  }
  // The same with a quarter to spare, for what grows a little from batch to batch: taking memory
  // stops the GPU.
  void* reserve_roomy(std::int64_t bytes, const char* what) {
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

using DeviceBlock = Block<FreeDevice>;
using PinnedBlock = Block<FreePinned>;  // host memory that the GPU reads and writes

// The most shared memory that a block of a kernel can ask for, in bytes.
std::size_t shared_memory_limit();

class Stream {
 public:
  Stream();
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor)

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event();
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream);
  void wait() const;                          // on the host
  void hold_back(cudaStream_t stream) const;  // the stream goes on when the event has come
  bool done() const;

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace qkscope::cuda
