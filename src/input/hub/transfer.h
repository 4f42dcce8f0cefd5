// Parallel transfers of many files with one progress line.
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

class TransferProgress {
 public:
  // `sizes` are the file sizes in bytes.
  TransferProgress(const std::string& what, const std::vector<std::uint64_t>& sizes, bool quiet);

  // Reports that `bytes` bytes of a file are complete. Thread-safe. The first report of a file
  // states what an earlier run already transferred.
  void update(std::size_t file, std::uint64_t bytes);

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint64_t> done_;
  std::chrono::steady_clock::time_point start_;
  std::uint64_t before_ = 0;  // bytes complete before this run
  std::vector<bool> begun_;
  Progress progress_;
};

// Runs task(0) to task(count - 1) on a few dedicated threads, because the tasks wait for the
// network and not for the CPU. After the first exception no new task starts, `failed` becomes true,
// and the exception is rethrown at the end.
using TransferTask = std::function<void(std::size_t index, const std::atomic<bool>& failed)>;
void run_transfers(std::size_t count, const TransferTask& task);

}  // namespace qkscope
