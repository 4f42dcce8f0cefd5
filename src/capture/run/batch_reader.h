// Reads, tokenizes and samples examples on a thread of its own, ahead of the forward pass.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/core/log.h"
#include "capture/run/capture_plan.h"
#include "capture/run/example_source.h"
#include "capture/writer/selection.h"

namespace qkscope {

// Checks that all token ids are in the vocabulary of the model, then samples positions. Throws a
// bad-input error that names the text with an id outside the vocabulary.
ExampleBatch prepare_batch(const RunPlan& plan, std::vector<Example> examples);
void check_token_ids(const RunPlan& plan, const Example& example);

class BatchReader {
 public:
  // Starts reading immediately. `plan` and `source` must outlive the reader; the source must not be
  // used elsewhere. Setting `stop` ends reading after the current document.
  BatchReader(const RunPlan& plan, ExampleSource& source, const std::atomic<bool>* stop = nullptr);
  ~BatchReader();  // blocks until the current document is read

  // Blocks until the next batch is ready. Returns nullopt after the last batch or after a stop.
  // Rethrows an exception from the reader thread once all earlier batches have been taken.
  std::optional<ExampleBatch> next();

  bool at_end() const;                     // every example of the source was taken
  std::size_t queued_batch_count() const;  // batches ready for next()
  double seconds_waited() const { return seconds_waited_; }

 private:
  bool read_batch();
  bool read_next_example();
  bool is_stopping() const { return closing_.load() || (stop_ != nullptr && stop_->load()); }

  static constexpr std::size_t kBatchesAhead = 2;  // maximum length of queue_

  const RunPlan& plan_;
  ExampleSource& source_;
  const std::atomic<bool>* stop_;

  // State of the reader thread; other threads may access it only after done_ is set.
  std::optional<Example> next_example_;  // example read, but not yet in a batch
  bool exhausted_ = false;
  std::exception_ptr error_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ExampleBatch> queue_;
  bool done_ = false;
  bool finished_ = false;  // every example of the source was queued
  std::atomic<bool> closing_{false};
  double seconds_waited_ = 0.0;
  // Reader thread. Declared last, because it uses all other members. If the thread cannot be
  // started, next() reads the examples.
  std::thread thread_;
};

// Runs batches on several devices concurrently. A free worker takes the next batch; results are
// returned in batch order, so the output does not depend on timing.
template <typename Result>
class BatchWorkers {
 public:
  using BatchFunction = std::function<Result(const ExampleBatch&)>;
  // Creates the batch function of worker i. The worker's thread creates, runs and destroys it.
  using BatchFunctionFactory = std::function<BatchFunction(std::size_t)>;

  struct FinishedBatch {
    ExampleBatch batch;
    Result result;
  };

  // Starts the workers. The reader must outlive this object. Batches run one at a time until
  // `settled` returns true, because the first batches may set state that all later batches share.
  BatchWorkers(
      BatchReader& reader, std::size_t count, BatchFunctionFactory make,
      std::function<bool()> settled = [] { return true; })
      : reader_(reader),
        make_(std::move(make)),
        settled_(std::move(settled)),
        max_batches_ahead_(static_cast<std::int64_t>(2 * count)) {
    threads_.reserve(count);
    try {
      for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { run_worker(i); });
    } catch (const std::exception& error) {
      if (threads_.empty()) throw;
      log::warn("only {} of {} devices have a thread ({}); going on with those", threads_.size(),
                count, error.what());
    }
  }

  // Stops the workers. Blocks until the batches they are running are done.
  ~BatchWorkers() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  // Returns the next batch in order with its result, or nullopt after the last. Also marks the
  // previous batch as consumed. Rethrows an exception from a batch when it is that batch's turn,
  // and an exception from creating a worker immediately.
  std::optional<FinishedBatch> next_result() {
    std::unique_lock lock(mutex_);
    given_ += std::exchange(holding_, 0);
    changed_.notify_all();
    changed_.wait(lock, [this] {
      return broken_ || finished_.contains(given_) || (end_ && given_ >= *end_);
    });
    if (broken_) std::rethrow_exception(broken_);
    const auto found = finished_.find(given_);
    if (found == finished_.end()) return {};
    auto item = std::move(found->second);
    finished_.erase(found);
    holding_ = 1;
    lock.unlock();
    if (item.error) std::rethrow_exception(item.error);
    return std::move(item.done);
  }

 private:
  struct BatchResultOrError {
    std::optional<FinishedBatch> done;
    std::exception_ptr error;
  };

  void run_worker(std::size_t worker) {
    try {
      const auto work = make_(worker);
      while (auto taken = take_next_batch()) {
        auto& [number, batch] = *taken;
        BatchResultOrError item;
        try {
          auto result = work(batch);
          item.done = FinishedBatch{std::move(batch), std::move(result)};
        } catch (...) {
          item.error = std::current_exception();
        }
        {
          const std::lock_guard lock(mutex_);
          finished_[number] = std::move(item);
        }
        changed_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!broken_) broken_ = std::current_exception();
      ending_ = true;
    }
    changed_.notify_all();
  }

  // Returns the next batch and its number, or nullopt at the end. reading_ serializes the workers,
  // so that numbers follow the order of the reader.
  std::optional<std::pair<std::int64_t, ExampleBatch>> take_next_batch() {
    const std::lock_guard one_at_a_time(reading_);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {
      return ending_ || end_ || taken_ == given_ ||
             (together_ && taken_ - given_ < max_batches_ahead_);
    });
    if (ending_ || end_) return {};
    if (!together_) together_ = settled_();  // safe: no batch is running
    const auto number = taken_++;
    lock.unlock();
    BatchResultOrError item;
    std::optional<ExampleBatch> batch;
    try {
      batch = reader_.next();
    } catch (...) {
      item.error = std::current_exception();
    }
    if (batch) return std::pair(number, std::move(*batch));
    {
      const std::lock_guard again(mutex_);
      end_ = number + (item.error ? 1 : 0);
      if (item.error) finished_[number] = std::move(item);
    }
    changed_.notify_all();
    return {};
  }

  BatchReader& reader_;
  BatchFunctionFactory make_;
  std::function<bool()> settled_;
  bool together_ = false;           // settled_() returned true: batches may run concurrently
  std::int64_t max_batches_ahead_;  // limit of batches taken but not consumed

  std::mutex reading_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, BatchResultOrError> finished_;  // by batch number
  std::int64_t taken_ = 0;
  std::int64_t given_ = 0;           // number of batches consumed by the caller
  std::int64_t holding_ = 0;         // 1 while the caller holds a batch that is not consumed
  std::optional<std::int64_t> end_;  // total number of batches, once known
  bool ending_ = false;
  std::exception_ptr broken_;
  std::vector<std::thread> threads_;  // last member: the threads use all others
};

}  // namespace qkscope
