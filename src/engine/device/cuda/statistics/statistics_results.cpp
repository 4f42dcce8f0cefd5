#include "engine/device/cuda/statistics/statistics_results.h"

#include <algorithm>
#include <utility>

#include "base/core/error.h"
#include "engine/device/cuda/cuda_error.h"

namespace qkscope::cuda {
namespace {

// Results in flight: a few layers; more would only cost memory.
constexpr std::size_t kMostPending = 16;
constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;

}  // namespace

std::byte* StatisticsResults::next(std::int64_t bytes) {
  take_arrived();
  while (!pending_.empty() &&
         (pending_.size() >= kMostPending || pending_bytes_ + bytes > kMostBytes))
    take_first();
  // Reuses the smallest buffer that fits, else allocates: allocation synchronizes the GPU.
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it)
    if ((*it)->device.bytes() >= bytes &&
        (best == idle_.end() || (*it)->device.bytes() < (*best)->device.bytes()))
      best = it;
  if (best == idle_.end()) {
    next_ = std::make_unique<Result>();
  } else {
    next_ = std::move(*best);
    idle_.erase(best);
  }
  next_->bytes = bytes;
  next_->host.reserve(bytes, "statistics");
  return static_cast<std::byte*>(next_->device.reserve(bytes, "statistics"));
}

void StatisticsResults::send(Take take) {
  QKSCOPE_ASSERT(next_ != nullptr);
  auto& result = *next_;
  result.take = std::move(take);
  result.filled.record(compute_);
  result.filled.make_stream_wait(copies_);
  check(cudaMemcpyAsync(result.host.data(), result.device.data(),
                        static_cast<std::size_t>(result.bytes), cudaMemcpyDeviceToHost, copies_),
        "copy statistics to the host");
  result.arrived.record(copies_);
  pending_bytes_ += result.bytes;
  pending_.push_back(std::move(next_));
}

void StatisticsResults::take_first() {
  auto result = std::move(pending_.front());
  pending_.pop_front();
  pending_bytes_ -= result->bytes;
  result->arrived.wait();
  const auto take = std::exchange(result->take, nullptr);
  const auto* host = result->host.as<std::byte>();
  idle_.push_back(std::move(result));  // the buffer is not written before the next call
  take(host);
}

void StatisticsResults::take_arrived() {
  while (!pending_.empty() && pending_.front()->arrived.done()) take_first();
}

void StatisticsResults::take_all() {
  while (!pending_.empty()) take_first();
}

void StatisticsResults::drop_all() {
  for (auto& result : pending_) {
    result->arrived.wait();
    result->take = nullptr;
    idle_.push_back(std::move(result));
  }
  pending_.clear();
  pending_bytes_ = 0;
}

}  // namespace qkscope::cuda
