// Reads and tokenizes examples and samples their positions on a separate thread, a few batches
// ahead of the forward pass.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "capture/run/capture_plan.h"
#include "capture/run/example_source.h"
#include "capture/writer/selection.h"

namespace qkscope {

// Checks that all token ids are in the vocabulary of the model, then samples positions. Throws a
// bad-input error that names the text with a wrong id.
PreparedBatch prepare_batch(const RunPlan& plan, std::vector<Example> examples);
void check_token_ids(const RunPlan& plan, const Example& example);

class BatchReader {
 public:
  // Starts reading immediately. `plan` and `source` must outlive the reader; the source must not be
  // used elsewhere. Setting `stop` ends reading after the current document.
  BatchReader(const RunPlan& plan, ExampleSource& source, const std::atomic<bool>* stop = nullptr);
  ~BatchReader();  // blocks until the current document is read

  // Blocks until the next batch is ready. Returns nullopt after the last batch or after a stop.
  // Rethrows an exception from the reader thread after all earlier batches were taken.
  std::optional<PreparedBatch> next();

  bool at_end() const;                 // every example of the source was taken
  std::size_t queued_batches() const;  // number of queued batches
  double seconds_waited() const { return seconds_waited_; }

 private:
  bool read_batch();
  std::vector<Example> next_batch_examples();
  bool read_next_example();
  bool is_stopping() const { return closing_.load() || (stop_ != nullptr && stop_->load()); }
  void enqueue(PreparedBatch batch);

  const RunPlan& plan_;
  ExampleSource& source_;
  const std::atomic<bool>* stop_;

  // State of the reader thread; other threads may access it only after done_ is set.
  std::optional<Example> ahead_;  // read but not yet in a batch
  bool exhausted_ = false;
  std::exception_ptr error_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PreparedBatch> queue_;
  bool done_ = false;
  bool finished_ = false;  // every example of the source was queued
  std::atomic<bool> closing_{false};
  double seconds_waited_ = 0.0;
  // Must be the last member, because the thread uses all others. If no thread can be started,
  // next() reads the examples itself.
  std::thread thread_;
};

}  // namespace qkscope
