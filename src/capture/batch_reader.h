// Reads, tokenizes and prepares batches on a thread of its own, a little ahead of the forward pass.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "capture/prepared_batch.h"

namespace qkscope {

class BatchReader {
 public:
  // Begins at once. `plan` and `source` must outlive it, and the source belongs to it until then.
  // When `stop` becomes true it ends after the document at hand.
  BatchReader(const CapturePlan& plan, ExampleSource& source,
              const std::atomic<bool>* stop = nullptr);
  ~BatchReader();  // waits for the document at hand
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Waits for the next batch. Nothing after the last one and when it was stopped; what reading
  // threw is thrown here once every batch before it was taken.
  std::optional<PreparedBatch> next();

  bool at_end() const;  // every example of the source was taken
  double seconds_waited() const { return seconds_waited_; }

 private:
  void read();
  std::vector<Example> take_examples();
  bool look_ahead();
  bool ending() const;
  void put(PreparedBatch batch);

  const CapturePlan& plan_;
  ExampleSource& source_;
  const std::atomic<bool>* stop_;

  // The thread's own until it is done.
  std::optional<Example> ahead_;  // read, and not yet in a batch
  bool exhausted_ = false;
  std::exception_ptr error_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PreparedBatch> queue_;
  bool done_ = false;
  bool finished_ = false;  // nothing of the source was left out
  std::atomic<bool> closing_{false};
  double seconds_waited_ = 0.0;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace qkscope
