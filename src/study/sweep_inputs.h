// What the runs of a sweep read from the Hub: one run ahead of its use, and gone after it if asked.
#pragma once

#include <future>
#include <mutex>
#include <vector>

#include "hub/fetch.h"
#include "study/sweep_config.h"

namespace qkscope {

class SweepInputs {
 public:
  // `runs` in the order in which they will be taken. With `evict` the weights of a checkpoint leave
  // the cache when every run of it is released.
  SweepInputs(std::vector<const SweepRun*> runs, FetchOptions options, bool evict);

  // Returns when checkpoint, tokenizer and dataset of run i are there.
  void fetch(std::size_t i);

  // Begins to fetch for run i and returns. What goes wrong shows in fetch(i).
  void fetch_ahead(std::size_t i);

  // Run i is captured, now or long ago. May be called from several threads.
  void release(std::size_t i);

 private:
  std::vector<const SweepRun*> runs_;
  FetchOptions options_;
  bool evict_;
  std::mutex mutex_;
  std::vector<bool> released_;
  std::future<void> ahead_;  // waits for its thread when it is destroyed
};

}  // namespace qkscope
