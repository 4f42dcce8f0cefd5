#include "capture/run/capture_run.h"

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "capture/format/stored_run.h"
#include "capture/run/batch_reader.h"
#include "capture/run/example_source.h"
#include "capture/writer/assemble.h"
#include "engine/device/backend.h"
#include "qkscope/experimental/log.h"

namespace qkscope {
namespace {

class CaptureRun {
 public:
  CaptureRun(const RunPlan& plan, const CaptureOptions& options, SharedPassConsumer* companion)
      : plan_(plan), options_(options), companion_(companion) {}

  CaptureResult run() {
    CaptureShardRun part(plan_, make_capture_shard_options(plan_, options_, [&] {
                           source_.emplace(plan_, options_.shard).wait_for_tokenizer();
                         }));
    if (part.is_open()) capture_part(part);
    auto result = part.finish();
    result.load_seconds = result_.load_seconds;
    result.forward_seconds = result_.forward_seconds;
    result.input_seconds = result_.input_seconds;
    result.seconds = seconds_since(start_);
    return result;
  }

 private:
  void capture_part(CaptureShardRun& part) {
    const auto& journal = part.journal();
    if (!source_) source_.emplace(plan_, options_.shard);
    auto& source = *source_;
    // A new run checks document ids for duplicates; a resumed run did so when it began.
    auto counting = source.scan_examples_async(
        journal.entries().empty() && source.has_dataset_ids(), shows_progress());
    if (journal.example_count() > 0)
      log::info("continuing after {} examples", format_count(journal.example_count()));
    most_examples_ = shared_examples_ = journal.example_count();
    if (companion_ != nullptr) {
      most_examples_ = std::max(most_examples_, companion_->example_count());
      shared_examples_ = std::min(shared_examples_, companion_->example_count());
    }
    for_each_example({journal}, [&, left = shared_examples_](const ExampleRecord& example) mutable {
      if (left-- > 0) source.skip_stored_example(example);
    });
    BatchReader reader(plan_, source, options_.stop);  // reads while the model loads
    log_milestone("the texts are being read");
    std::unique_ptr<LoadedCheckpoint> model;
    if (!plan_.engine)
      model = std::make_unique<LoadedCheckpoint>(
          load_unprocessed_checkpoint(plan_.model_folder, config_overrides(plan_.config.model)));
    log_milestone("the model is mapped");
    if (assembles_in_background()) part.start_background_assembly();
    auto& writer = part.writer();
    const auto begin = [&] {
      log_memory();
      source.wait_for_tokenizer();
      total_ = counting.get();  // throws when two rows share an id, before any forward pass
      result_.load_seconds = seconds_since(start_);
      log_milestone("the first pass can begin");
    };
    bool all = false;
    ForwardPass pass;
    if (worker_count() == 1) {
      pass = make_forward_pass(model.get(), 0);
      begin();
      if (companion_ != nullptr) companion_->begin_run(*pass.backend);
      all = add_batches(writer, [&] { return capture_next_batch(reader, pass, writer); });
    } else {
      QKSCOPE_ASSERT(companion_ == nullptr);
      begin();
      all = capture_with_workers(reader, model.get(), writer);
    }
    log_milestone("the last batch is computed");
    part.close_part(all && reader.at_end());
    if (companion_ != nullptr) companion_->finish_run(all && reader.at_end());
    result_.forward_seconds = writer.forward_seconds() / static_cast<double>(worker_count());
    result_.input_seconds = reader.seconds_waited();
    // Freeing GPU memory takes a while, so another thread does it while head files are assembled.
    unloading_ = run_in_background([model = std::move(model), pass = std::move(pass)]() mutable {
      pass = {};
      model.reset();
    });
  }

  // Runs batches on a backend or, if `backend` is null, on an external engine.
  struct ForwardPass {
    std::shared_ptr<Backend> backend = nullptr;
    RunPass run = {};
  };

  // Creates the forward pass of a worker. `model` is null with an external engine.
  ForwardPass make_forward_pass(const LoadedCheckpoint* model, std::size_t worker) const {
    if (const auto& external = plan_.engine)
      return {nullptr, [external](const Batch& batch, Observer& observer) {
                external->run(batch, observer);
              }};
    const std::shared_ptr<Backend> backend = make_backend(*model, plan_.workers[worker]);
    return {backend, [backend](const Batch& batch, Observer& observer) {
              forward(*backend, batch, observer);
            }};
  }

  struct BatchCounts {
    std::size_t examples = 0;
    std::int64_t tokens = 0;
  };

  std::optional<BatchCounts> capture_next_batch(BatchReader& reader, const ForwardPass& pass,
                                                CapturePartWriter& writer) {
    auto batch = reader.next();
    if (!batch) return {};
    const BatchCounts added{batch->examples.size(), batch->token_count()};
    if (companion_ == nullptr)
      writer.capture_and_store(*batch, pass.run);
    else
      capture_batch_with_statistics(std::move(*batch), pass, writer);
    return added;
  }

  std::size_t worker_count() const {
    if (plan_.engine) return plan_.engine->model().concurrent_runs ? 2 : 1;
    return plan_.workers.size();
  }

  // Runs forward passes concurrently on several devices; rows are written in batch order.
  bool capture_with_workers(BatchReader& reader, const LoadedCheckpoint* model,
                            CapturePartWriter& writer) {
    BatchWorkers<CapturedBatch> workers(reader, worker_count(), [&](std::size_t worker) {
      return [this, pass = make_forward_pass(model, worker)](const ExampleBatch& batch) {
        return capture_to_memory(plan_, batch, pass.run);
      };
    });
    return add_batches(writer, [&]() -> std::optional<BatchCounts> {
      const auto done = workers.next_result();
      if (!done) return {};
      writer.append_batch(done->batch, done->result);
      return BatchCounts{done->batch.examples.size(), done->batch.token_count()};
    });
  }

  // Calls `add_next` until there are no more texts (returns true) or the run is stopped (false).
  bool add_batches(CapturePartWriter& writer,
                   const std::function<std::optional<BatchCounts>()>& add_next) {
    Progress progress({.what = "capture",
                       .unit = "examples",
                       .total = total_,
                       .before = writer.example_count(),
                       .quiet = options_.quiet});
    const auto start = Clock::now();
    const auto tokens_before = writer.token_count();
    while (!is_stop_requested()) {
      const auto batch_start = Clock::now();
      const auto added = add_next();
      if (!added) return true;
      if (batches_++ == 0) log_milestone("the first batch is computed");
      const auto& inference = plan_.config.inference;
      if (inference.debug_logging && batches_ % inference.debug_log_every_n_batches == 0)
        log::info("batch {}: {} examples, {} tokens, {:.3f} s", batches_, added->examples,
                  added->tokens, seconds_since(batch_start));
      const auto rate = static_cast<std::uint64_t>(
          static_cast<double>(writer.token_count() - tokens_before) / seconds_since(start));
      progress.update(writer.example_count(),
                      fmt::format("{} tokens/s, {} rows", format_count(rate),
                                  format_count(writer.row_count())));
      if (options_.on_batch)
        options_.on_batch(
            {writer.example_count(), total_, writer.row_count(), writer.token_count()});
    }
    return false;
  }

  // After a crash, the capture and its companion (statistics from the same passes) may have stored
  // different numbers of examples. An example stored by only one of them is rerun for the other.
  void capture_batch_with_statistics(ExampleBatch batch, const ForwardPass& pass,
                                     CapturePartWriter& writer) {
    const auto lacking = most_examples_ - shared_examples_;
    if (lacking > 0 && std::ssize(batch.examples) > lacking) {
      auto& all = batch.examples;
      std::vector<Example> later(std::make_move_iterator(all.begin() + lacking),
                                 std::make_move_iterator(all.end()));
      all.resize(static_cast<std::size_t>(lacking));
      capture_batch_with_statistics(prepare_batch(plan_, std::move(all)), pass, writer);
      return capture_batch_with_statistics(prepare_batch(plan_, std::move(later)), pass, writer);
    }
    shared_examples_ += std::ssize(batch.examples);
    if (lacking == 0) {
      most_examples_ = shared_examples_;
      auto& statistics = companion_->begin_batch(batch);
      writer.capture_and_store(batch, [&](const Batch& rows, Observer& observer) {
        forward(*pass.backend, rows, observer, statistics);
      });
      companion_->add_observed_batch(batch);
    } else if (writer.example_count() < companion_->example_count()) {
      writer.capture_and_store(batch, pass.run);
    } else {
      companion_->run_unshared_pass(batch);
    }
  }

  void log_milestone(std::string_view what) const {
    log::debug("{:.3f} s: {}", seconds_since(start_), what);
  }

  void log_memory() const {
    const auto& memory = plan_.memory;
    if (plan_.engine || plan_.backend.device.kind == Device::Kind::cpu) return;
    log::info(
        "{}{}: {} of weights{}, {} of activations at up to {} tokens together, {} free before",
        device_name(plan_.backend.device),
        plan_.workers.size() > 1 ? fmt::format(" and {} more, each", plan_.workers.size() - 1) : "",
        format_bytes(memory.held_weights), memory.streams() ? " at a time (they stream)" : "",
        format_bytes(memory.activations), format_count(memory.batch_tokens),
        format_bytes(memory.available));
  }

  // Assembling files in the background would slow down CPU forward passes, which use all cores.
  bool assembles_in_background() const {
    const bool idle_cores = plan_.backend.device.kind != Device::Kind::cpu;
    return options_.shard.count == 1 && plan_.config.output.assemble_ahead.value_or(idle_cores);
  }
  bool shows_progress() const { return !options_.quiet || options_.on_batch; }
  bool is_stop_requested() const { return options_.stop != nullptr && options_.stop->load(); }

  const RunPlan& plan_;
  const CaptureOptions& options_;
  SharedPassConsumer* companion_;
  Clock::time_point start_ = Clock::now();
  CaptureResult result_;  // holds the measured times only
  std::optional<ExampleSource> source_;
  std::int64_t most_examples_ = 0;    // stored by the capture or its companion
  std::int64_t shared_examples_ = 0;  // stored by both the capture and its companion
  std::int64_t total_ = 0;            // examples of the shard; 0 when unknown
  std::int64_t batches_ = 0;
  std::future<void> unloading_;  // frees the model in the background
};

}  // namespace

ShardRunOptions make_capture_shard_options(const RunPlan& plan, const CaptureOptions& options,
                                           std::function<void()> check_inputs) {
  return {.kind = kCaptureRun,
          .data_root = plan.config.output.data_root,
          .inputs = snapshot_inputs(plan),
          .manifest = make_fingerprinted_manifest(plan),
          .shard = options.shard,
          .overwrite = options.overwrite,
          .quiet = options.quiet,
          .check_inputs = std::move(check_inputs)};
}

CaptureResult run_capture(const RunPlan& plan, const CaptureOptions& options,
                          SharedPassConsumer* companion) {
  return CaptureRun(plan, options, companion).run();
}

bool can_resume_capture(const RunPlan& plan) {
  if (const auto address = parse_store_uri(plan.config.output.data_root))
    return StoredRun(*address, StoredRun::kCapture)
        .can_be_resumed_by(make_fingerprinted_manifest(plan));
  return DataRoot(plan.config.output.data_root)
      .can_be_resumed_by(make_fingerprinted_manifest(plan));
}

CaptureResult merge_capture(const std::string& data_root, bool quiet) {
  const auto start = Clock::now();
  const auto assemble = [&](const DataRoot& root, std::vector<Journal> parts) {
    CaptureAssembler(root, std::move(parts)).finish(quiet);
  };
  auto result = translate_exceptions(
      [&] { return merge_all_parts(kCaptureRun, data_root, quiet, assemble); });
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace qkscope
