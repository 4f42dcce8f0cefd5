// Reads and tokenizes examples and samples their positions on a separate thread, a few batches
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

// Sampled positions of one group of heads.
struct HeadGroupSample {
  std::vector<std::int32_t> positions;  // sequence after sequence, ascending in each
  std::vector<std::int64_t> rows;       // (positions) row in the batch
  std::vector<std::size_t> ends;        // (sequences) end of each sequence in `positions`
};

// Examples that run in one forward pass, with their sequences and sampled positions.
struct PreparedBatch {
  std::vector<Example> examples;
  Batch batch;                           // of the examples with at least one token
  std::vector<std::size_t> sequence;     // (sequences) index into `examples`
  std::vector<HeadGroupSample> samples;  // (groups of the manifest)

  std::int64_t tokens() const { return batch.rows(); }
};

PreparedBatch prepare_batch(const RunPlan& plan, std::vector<Example> examples);

class BatchReader {
 public:
  // Starts reading at once. `plan` and `source` must outlive the reader, and no one else may use
  // the source. Setting `stop` ends reading after the current document.
  BatchReader(const RunPlan& plan, ExampleSource& source, const std::atomic<bool>* stop = nullptr);
  ~BatchReader();  // blocks until the current document is read
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Blocks until the next batch is ready. Returns nullopt after the last batch or after a stop.
  // Rethrows an exception of the reading thread after all earlier batches were taken.
  std::optional<PreparedBatch> next();

  bool at_end() const;                 // every example of the source was taken
  std::size_t queued_batches() const;  // number of queued batches
  double seconds_waited() const { return seconds_waited_; }

 private:
  bool read_batch();
  std::vector<Example> next_batch_examples();
  bool read_next_example();
  bool is_stopping() const;
  void enqueue(PreparedBatch batch);

  const RunPlan& plan_;
  ExampleSource& source_;
  const std::atomic<bool>* stop_;

  // State of the reading thread; no other thread reads these members before done_ is set.
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
  // Last member: the thread uses all others. Without a thread, because the system refused one,
  // next() reads.
  std::thread thread_;
};

}  // namespace qkscope
