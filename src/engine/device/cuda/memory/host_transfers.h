// Transfers of results to the host, in order: a buffer is filled on the GPU in stream order, copied
// while later layers run, and delivered to its consumer on arrival.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/device/cuda/memory/device_memory.h"

namespace qkscope::cuda {

class HostTransfers {
 public:
  using Deliver = std::function<void(const std::byte*)>;

  // At most `most_bytes` bytes are in flight; begin_transfer() waits for the oldest transfers if
  // necessary.
  HostTransfers(cudaStream_t compute, std::int64_t most_bytes)
      : compute_(compute), most_bytes_(most_bytes) {}

  // Starts the next transfer and returns its `bytes` bytes of GPU memory. `capacity` is the size of
  // a new allocation; buffers are reused.
  std::byte* begin_transfer(std::int64_t bytes, std::int64_t capacity, const char* what);
  // Upload buffer for indices that are read by the kernel filling the memory returned by
  // begin_transfer().
  UploadBuffer& indices() { return next_->indices; }
  // Copies the data written so far by the compute stream to the host and passes it to `deliver`,
  // immediately or later, in call order.
  void send(Deliver deliver);

  void deliver_all();
  void drop_all();  // waits for the copies and discards them

 private:
  struct Transfer {
    UploadBuffer indices;
    DeviceMemory device;
    PinnedMemory host;
    std::int64_t bytes = 0;
    Event filled;
    Event arrived;
    Deliver deliver;
  };

  void deliver_first();

  cudaStream_t compute_;
  std::int64_t most_bytes_;
  Stream copies_;
  std::unique_ptr<Transfer> next_;
  std::deque<std::unique_ptr<Transfer>> pending_;  // in the order of the calls
  std::int64_t pending_bytes_ = 0;
  std::vector<std::unique_ptr<Transfer>> idle_;
};

}  // namespace qkscope::cuda
