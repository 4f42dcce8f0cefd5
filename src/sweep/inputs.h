// What the runs of a sweep read from the Hub: one run ahead of its use, and gone after it if asked.
#pragma once

#include <future>
#include <vector>

#include "hub/fetch.h"
#include "sweep/config.h"

namespace qkscope {

class SweepInputs {
 public:
  // `runs` in the order in which they will be taken. With `evict` the weights of a checkpoint leave
  // the cache when no later run needs them.
  SweepInputs(std::vector<const SweepRun*> runs, FetchOptions options, bool evict);

  // Returns when checkpoint, tokenizer and dataset of run i are there.
  void fetch(std::size_t i);

  // Begins to fetch for run i and returns. What goes wrong shows in fetch(i).
  void fetch_ahead(std::size_t i);

  void release(std::size_t i);

 private:
  bool needed_after(std::size_t i) const;

  std::vector<const SweepRun*> runs_;
  FetchOptions options_;
  bool evict_;
  std::future<void> ahead_;  // waits for its thread when it is destroyed
};

}  // namespace qkscope
