#include "engine/device/cuda/memory/host_transfers.h"

#include <algorithm>
#include <utility>

#include "base/core/error.h"

namespace qkscope::cuda {

constexpr std::size_t kMostPending = 16;  // transfers in flight; more would only cost memory

std::byte* HostTransfers::begin_transfer(std::int64_t bytes, std::int64_t capacity,
                                         const char* what) {
  while (!pending_.empty() && pending_.front()->arrived.done()) deliver_first();
  while (!pending_.empty() &&
         (pending_.size() >= kMostPending || pending_bytes_ + bytes > most_bytes_))
    deliver_first();
  // Reuses the smallest buffer that fits, else allocates: allocation synchronizes the GPU.
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it)
    if ((*it)->device.bytes() >= bytes &&
        (best == idle_.end() || (*it)->device.bytes() < (*best)->device.bytes()))
      best = it;
  if (best == idle_.end()) {
    next_ = std::make_unique<Transfer>();
    next_->device.reserve(capacity, what);
    next_->host.reserve(capacity, what);
  } else {
    next_ = std::move(*best);
    idle_.erase(best);
  }
  next_->bytes = bytes;
  return next_->device.as<std::byte>();
}

void HostTransfers::send(Deliver deliver) {
  QKSCOPE_ASSERT(next_ != nullptr);
  auto& transfer = *next_;
  transfer.deliver = std::move(deliver);
  transfer.filled.record(compute_);
  transfer.filled.make_stream_wait(copies_);
  check(cudaMemcpyAsync(transfer.host.data(), transfer.device.data(),
                        static_cast<std::size_t>(transfer.bytes), cudaMemcpyDeviceToHost, copies_),
        "copy results to the host");
  transfer.arrived.record(copies_);
  pending_bytes_ += transfer.bytes;
  pending_.push_back(std::move(next_));
}

void HostTransfers::deliver_first() {
  auto transfer = std::move(pending_.front());
  pending_.pop_front();
  pending_bytes_ -= transfer->bytes;
  transfer->arrived.wait();
  std::exchange(transfer->deliver, nullptr)(transfer->host.as<std::byte>());
  idle_.push_back(std::move(transfer));
}

void HostTransfers::deliver_all() {
  while (!pending_.empty()) deliver_first();
}

void HostTransfers::drop_all() {
  for (auto& transfer : pending_) {
    transfer->arrived.wait();
    transfer->deliver = nullptr;
    idle_.push_back(std::move(transfer));
  }
  pending_.clear();
  pending_bytes_ = 0;
}

}  // namespace qkscope::cuda
