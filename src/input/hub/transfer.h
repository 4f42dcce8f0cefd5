// What downloads and uploads share: many files at once, one progress line for all of them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "qkscope/experimental/log.h"

namespace qkscope {

class TransferMeter {
 public:
  // `sizes`: of the files, in bytes.
  TransferMeter(const std::string& what, const std::vector<std::uint64_t>& sizes, bool quiet);

  // `bytes` of the file with this index are there; from any thread. The first report of a file says
  // what an earlier run left of it.
  void update(std::size_t file, std::uint64_t bytes);

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint64_t> done_;
  std::chrono::steady_clock::time_point start_;
  std::uint64_t before_ = 0;  // there at the start
  std::vector<bool> begun_;
  Progress progress_;
};

// Runs task(0) to task(count - 1) on a few threads of their own: they wait for the network, not for
// the processor. After the first error no further task is begun, `failed` tells the others, and the
// error is thrown in the end.
using TransferTask = std::function<void(std::size_t index, const std::atomic<bool>& failed)>;
void run_transfers(std::size_t count, const TransferTask& task);

}  // namespace qkscope
