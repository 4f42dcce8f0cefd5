#include "capture/run/batch_reader.h"

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/thread_pool.h"
#include "capture/run/selection.h"

namespace qkscope {
namespace {

constexpr std::size_t kBatchesAhead = 2;

HeadGroupSample sample_positions(const PreparedBatch& prepared, const HeadGroup& group,
                                 const PositionSampler& sampler) {
  HeadGroupSample sample;
  for (std::size_t s = 0; s < prepared.sequence.size(); ++s) {
    const auto& example = prepared.examples[prepared.sequence[s]];
    const auto& sequence = prepared.batch.sequences[s];
    const auto seed = sampling_seed(example.record.key, group.layer, static_cast<char>(group.kind));
    for (const auto position : sampler.sample(seed, sequence.length)) {
      sample.positions.push_back(position);
      sample.rows.push_back(sequence.begin + position);
    }
    sample.ends.push_back(sample.positions.size());
  }
  return sample;
}

// The forward pass also checks token ids, but its error message cannot say which text they are
// from.
void check_ids(const RunPlan& plan, const Example& example) {
  const auto rows = plan.model.embedding_rows;
  for (std::size_t position = 0; position < example.ids.size(); ++position) {
    const auto id = example.ids[position];
    if (id >= 0 && id < rows) continue;
    bad_input(
        "{}: row {}: token id {} at position {} is outside the model's vocabulary of {}; does the "
        "tokenizer {} belong to the model {}?",
        plan.dataset_path, example.record.row, id, position, rows, plan.tokenizer_folder,
        plan.model_folder);
  }
}

}  // namespace

PreparedBatch prepare_batch(const RunPlan& plan, std::vector<Example> examples) {
  PreparedBatch prepared;
  prepared.examples = std::move(examples);
  for (std::size_t i = 0; i < prepared.examples.size(); ++i) {
    const auto& ids = prepared.examples[i].ids;
    if (ids.empty()) continue;  // a text without tokens has no rows
    check_ids(plan, prepared.examples[i]);
    prepared.batch.add(ids);
    prepared.sequence.push_back(i);
  }
  const auto& groups = plan.manifest.groups;
  const PositionSampler sampler(plan.manifest.sampler);
  prepared.samples.resize(groups.size());
  parallel_for(static_cast<std::int64_t>(groups.size()), [&](std::int64_t i) {
    const auto group = static_cast<std::size_t>(i);
    prepared.samples[group] = sample_positions(prepared, groups[group], sampler);
  });
  return prepared;
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

std::optional<PreparedBatch> BatchReader::next() {
  const auto start = Clock::now();
  if (!thread_.joinable() && !done_) read_batch();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_ || !queue_.empty(); });
  seconds_waited_ += seconds_since(start);
  if (queue_.empty()) {
    if (error_) std::rethrow_exception(error_);
    return {};
  }
  std::optional<PreparedBatch> batch = std::move(queue_.front());
  queue_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return batch;
}

bool BatchReader::at_end() const {
  const std::lock_guard lock(mutex_);
  return finished_ && queue_.empty();
}

std::size_t BatchReader::queued_batches() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

// Queues one batch. Returns false at the end and after an error, which it records.
bool BatchReader::read_batch() {
  bool all_put = false;
  try {
    auto examples = next_batch_examples();
    all_put = examples.empty() && exhausted_;
    if (!examples.empty() && !is_stopping()) {
      enqueue(prepare_batch(plan_, std::move(examples)));
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

// Returns the examples of the next batch; empty at the end.
std::vector<Example> BatchReader::next_batch_examples() {
  std::vector<Example> taken;
  std::int64_t tokens = 0;
  const auto& packing = plan_.packing;
  while (!is_stopping()) {
    const auto count = static_cast<std::int64_t>(taken.size());
    if (!packing.accepts(count, tokens, 0) || !read_next_example()) break;
    if (!packing.accepts(count, tokens, ahead_->record.tokens)) break;
    tokens += ahead_->record.tokens;
    taken.push_back(std::move(*ahead_));
    ahead_.reset();
  }
  return taken;
}

// Reads one example ahead. Returns false at the end and after an error.
bool BatchReader::read_next_example() {
  if (ahead_) return true;
  if (exhausted_ || error_) return false;
  Example example;
  try {
    exhausted_ = !source_.next(example);
    if (const auto dropped = source_.dropped_chunks(); exhausted_ && dropped > 0)
      log::info("{} last chunks of texts have fewer than {} tokens and were dropped", dropped,
                plan_.config.tokenizer.chunk.min_length);
  } catch (...) {
    error_ = std::current_exception();
  }
  if (exhausted_ || error_) return false;
  ahead_ = std::move(example);
  return true;
}

bool BatchReader::is_stopping() const {
  return closing_.load() || (stop_ != nullptr && stop_->load());
}

void BatchReader::enqueue(PreparedBatch batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_.load() || queue_.size() < kBatchesAhead; });
  queue_.push_back(std::move(batch));
  lock.unlock();
  changed_.notify_all();
}

}  // namespace qkscope
