// Batches: examples are read, tokenized and their positions drawn on a thread of its own, a little
// ahead of the forward pass.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "capture/run/capture_plan.h"
#include "capture/run/example_source.h"
#include "qkscope/forward.h"

namespace qkscope {

// What is kept of one group of heads.
struct GroupSample {
  std::vector<std::int32_t> positions;  // ascending in each sequence, all sequences in order
  std::vector<std::int64_t> rows;       // (positions) of the batch
  std::vector<std::size_t> ends;        // (sequences) where the positions of each end
};

// Examples that run together, with all that can be known before they run: the sequences and the
// sampled positions.
struct PreparedBatch {
  std::vector<Example> examples;
  Batch batch;                        // of the examples that have a token
  std::vector<std::size_t> sequence;  // (sequences) its place among the examples
  std::vector<GroupSample> samples;   // one per group of the manifest

  std::int64_t tokens() const { return batch.rows(); }
};

PreparedBatch prepare_batch(const RunPlan& plan, std::vector<Example> examples);

class BatchReader {
 public:
  // Begins at once. `plan` and `source` must outlive it, and the source belongs to it until then.
  // When `stop` becomes true it ends after the document at hand.
  BatchReader(const RunPlan& plan, ExampleSource& source, const std::atomic<bool>* stop = nullptr);
  ~BatchReader();  // waits for the document at hand
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Waits for the next batch. Nothing after the last one and when it was stopped; what reading
  // threw is thrown here once every batch before it was taken.
  std::optional<PreparedBatch> next();

  bool at_end() const;        // every example of the source was taken
  std::size_t ready() const;  // batches that wait to be taken
  double seconds_waited() const { return seconds_waited_; }

 private:
  void read();
  std::vector<Example> take_examples();
  bool look_ahead();
  bool ending() const;
  void put(PreparedBatch batch);

  const RunPlan& plan_;
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
