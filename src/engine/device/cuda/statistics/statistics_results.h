// Transfer of statistics to the host: a result is filled on the GPU in stream order, copied while
// the next layers run, and delivered on arrival.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/device/cuda/memory/device_memory.h"

namespace qkscope::cuda {

class StatisticsResults {
 public:
  using Take = std::function<void(const std::byte*)>;

  explicit StatisticsResults(cudaStream_t compute) : compute_(compute) {}

  // Returns GPU memory for the next result. What the stream has written by the time of send() is
  // copied to the host and delivered to `take`, immediately or later, in call order.
  std::byte* next(std::int64_t bytes);
  void send(Take take);

  void take_arrived();
  void take_all();
  void drop_all();  // waits for the copies and discards them

 private:
  struct Result {
    DeviceBlock device;
    PinnedBlock host;
    std::int64_t bytes = 0;
    Event filled;
    Event arrived;
    Take take;
  };

  void take_first();

  cudaStream_t compute_;
  Stream copies_;
  std::unique_ptr<Result> next_;
  std::deque<std::unique_ptr<Result>> pending_;  // in the order of the calls
  std::int64_t pending_bytes_ = 0;
  std::vector<std::unique_ptr<Result>> idle_;
};

}  // namespace qkscope::cuda
