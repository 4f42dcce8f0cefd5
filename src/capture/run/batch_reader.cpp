#include "capture/run/batch_reader.h"

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"

namespace qkscope {
// Check token ids before the forward pass, whose error message cannot say which text is wrong.
void check_token_ids(const RunPlan& plan, const Example& example) {
  const auto rows = plan.model.embedding_rows;
  for (std::size_t position = 0; position < example.ids.size(); ++position) {
    const auto id = example.ids[position];
    if (id >= 0 && id < rows) continue;
    if (plan.engine)
      reject("text {}: token id {} at position {} is outside the model's vocabulary of {}",
             quote_text(example.record.source_id), id, position, rows);
    reject(
        "{}: row {}: token id {} at position {} is outside the model's vocabulary of {}; does the "
        "tokenizer {} belong to the model {}?",
        plan.dataset_path, example.record.row, id, position, rows, plan.tokenizer_folder,
        plan.model_folder);
  }
}

ExampleBatch prepare_batch(const RunPlan& plan, std::vector<Example> examples) {
  for (const auto& example : examples) check_token_ids(plan, example);
  return prepare_batch(plan.manifest, std::move(examples));
}

BatchReader::BatchReader(const RunPlan& plan, ExampleSource& source, const std::atomic<bool>* stop)
    : plan_(plan), source_(source), stop_(stop) {
  try {
    thread_ = std::thread([this] {
      while (read_batch()) continue;
    });
  } catch (const std::system_error& error) {
    log::debug("texts are read between the batches, without a thread: {}", error.what());
  }
}

BatchReader::~BatchReader() {
  closing_.store(true);
  {
    const std::lock_guard lock(mutex_);  // no lost wakeup between the thread's check and its wait
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::optional<ExampleBatch> BatchReader::next() {
  const auto start = Clock::now();
  if (!thread_.joinable() && !done_) read_batch();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_ || !queue_.empty(); });
  seconds_waited_ += seconds_since(start);
  if (queue_.empty()) {
    if (error_) std::rethrow_exception(error_);
    return {};
  }
  std::optional<ExampleBatch> batch = std::move(queue_.front());
  queue_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return batch;
}

bool BatchReader::at_end() const {
  const std::lock_guard lock(mutex_);
  return finished_ && queue_.empty();
}

std::size_t BatchReader::queued_batch_count() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

// Queues one batch. Returns false after the last batch or an error; stores errors in error_.
bool BatchReader::read_batch() {
  bool all_put = false;
  try {
    std::vector<Example> examples;
    std::int64_t tokens = 0;
    const auto& packing = plan_.packing;
    while (!is_stopping()) {
      const auto count = std::ssize(examples);
      if (!packing.can_add_example(count, tokens, 0) || !read_next_example()) break;
      if (!packing.can_add_example(count, tokens, next_example_->record.tokens)) break;
      tokens += next_example_->record.tokens;
      examples.push_back(std::move(*next_example_));
      next_example_.reset();
    }
    all_put = examples.empty() && exhausted_;
    if (!examples.empty() && !is_stopping()) {
      auto batch = prepare_batch(plan_, std::move(examples));
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return closing_.load() || queue_.size() < kBatchesAhead; });
        queue_.push_back(std::move(batch));
      }
      changed_.notify_all();
      return true;
    }
  } catch (...) {
    error_ = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    finished_ = all_put;
  }
  changed_.notify_all();
  return false;
}

// Reads one example ahead. Returns false after the last example or after an error.
bool BatchReader::read_next_example() {
  if (next_example_) return true;
  if (exhausted_ || error_) return false;
  Example example;
  try {
    exhausted_ = !source_.next(example);
    if (const auto dropped = source_.dropped_chunk_count(); exhausted_ && dropped > 0)
      log::info("{} last chunks of texts have fewer than {} tokens and were dropped", dropped,
                plan_.config.tokenizer.chunk.min_length);
  } catch (...) {
    error_ = std::current_exception();
  }
  if (exhausted_ || error_) return false;
  next_example_ = std::move(example);
  return true;
}

}  // namespace qkscope
