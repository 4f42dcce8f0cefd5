#include "capture/run/capture_run.h"

#include <algorithm>
#include <functional>
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
#include "capture/format/data_root.h"
#include "capture/format/parts.h"
#include "capture/format/segment.h"
#include "capture/format/stored_run.h"
#include "capture/run/assemble.h"
#include "capture/run/batch_reader.h"
#include "capture/run/batch_workers.h"
#include "capture/run/capture_config.h"
#include "capture/run/capture_observer.h"
#include "capture/run/part_writer.h"
#include "capture/run/run_in_store.h"
#include "capture/run/run_inputs.h"
#include "engine/device/device.h"
#include "qkscope/experimental/log.h"

namespace qkscope {
namespace {

using Outcome = CaptureResult::Outcome;

constexpr PartsKind kCaptureParts{"a capture", "capture", "examples"};

// Passes the source over the first `count` examples that the journal says are done.
void skip_done(const Journal& journal, std::int64_t count, ExampleSource& source) {
  for (const auto& entry : journal.entries()) {
    if (count == 0) return;
    const SegmentReader segment(journal.segment_path(entry.segment),
                                journal.manifest().groups.size());
    segment.check_index();
    auto examples = segment.example_table();
    if (std::ssize(examples) > count) examples.resize(static_cast<std::size_t>(count));
    source.skip(examples);
    count -= std::ssize(examples);
  }
}

class Run {
 public:
  // `start`: when the run began. `stored`: it is one of an object store, and works in a local data
  // root.
  Run(const RunPlan& plan, const CaptureOptions& options, PassCompanion* companion,
      Manifest manifest, Clock::time_point start, StoredRun* stored = nullptr)
      : plan_(plan),
        options_(options),
        companion_(companion),
        manifest_(std::move(manifest)),
        start_(start),
        stored_(stored),
        root_(stored != nullptr ? stored->local_root() : plan.config.output.data_root) {}

  CaptureResult run() {
    if (root_.finished() && !options_.overwrite) {
      const auto result = already_finished();
      root_.remove_left_parts();
      return result;
    }
    const auto lock = root_.lock(options_.shard);
    CaptureResult result;
    try {
      result = run_locked();
    } catch (...) {
      remove_unused_part(lock);
      throw;
    }
    const bool in_store = stored_ != nullptr && result.outcome == Outcome::part_finished;
    if (result.outcome == Outcome::interrupted || result.outcome == Outcome::already_finished ||
        in_store)
      remove_unused_part(lock);
    return result;
  }

 private:
  CaptureResult run_locked() {
    CaptureResult result;
    if (options_.overwrite) {
      source_.emplace(plan_, options_.shard).wait();  // or nothing is replaced
      root_.remove_capture(manifest_, options_.shard);
    }
    if (root_.finished()) return already_finished();  // by another, just now
    if (stored_ != nullptr) stored_->bring(options_.shard);
    auto journal = root_.open_part(manifest_, options_.shard);
    journal.remove_strays();
    if (stored_ != nullptr) stored_->follow(journal, options_.shard);
    Assembly assembly(root_, {journal});
    if (!journal.complete()) capture(journal, assembly, result);
    tell("all rows are stored");
    result.examples = journal.examples();
    result.rows = journal.rows();
    result.tokens = journal.tokens();
    result.non_finite = journal.non_finite();
    if (!journal.complete()) {
      result.outcome = Outcome::interrupted;
    } else if (options_.shard.count > 1) {
      result.outcome = Outcome::part_finished;
      if (stored_ != nullptr) StoredRun::forget(journal);
    } else {
      const auto start = Clock::now();
      assembly.finish(options_.quiet);
      result.assembly_seconds = seconds_since(start);
      result.outcome = Outcome::finished;
      tell("the files are assembled");
    }
    return result;
  }

  // A run that stored nothing leaves nothing. What goes wrong here is less than what went wrong
  // before.
  void remove_unused_part(const DataRootLock& lock) const {
    try {
      root_.remove_unused_part(options_.shard, lock);
    } catch (const Error& error) {
      log::warn("{}", error.what());
    }
  }

  CaptureResult already_finished() const {
    root_.check_finished(manifest_.identity);
    CaptureResult result;
    result.outcome = Outcome::already_finished;
    return result;
  }

  void capture(Journal& journal, Assembly& assembly, CaptureResult& result) {
    if (!source_) source_.emplace(plan_, options_.shard);
    auto& source = *source_;
    const bool begins = journal.entries().empty();
    // A run that continues has checked its ids before.
    auto counting = source.count(begins && source.has_foreign_ids(), watched());
    if (journal.examples() > 0)
      log::info("continuing after {} examples", format_count(count(journal.examples())));
    ahead_ = behind_ = journal.examples();
    if (companion_ != nullptr) {
      ahead_ = std::max(ahead_, companion_->examples());
      behind_ = std::min(behind_, companion_->examples());
    }
    skip_done(journal, behind_, source);
    BatchReader reader(plan_, source, options_.stop);  // reads while the model is loaded
    tell("the texts are being read");
    auto engine = std::make_unique<Engine>(
        Engine{.model = load_model(plan_.model_folder, config_overrides(plan_.config.model))});
    const auto& model = engine->model;
    tell("the model is mapped");
    if (assembles_ahead()) assembly.begin_ahead();
    PartWriter writer(plan_, journal,
                      [&assembly](const JournalEntry& entry) { assembly.learn(entry); });
    const auto begin = [&] {
      log_memory();
      source.wait();
      total_ = counting.get();  // nothing is computed before the ids are known to be good
      result.load_seconds = seconds_since(start_);
      tell("the first pass can begin");
    };
    bool all = false;
    if (plan_.workers.size() == 1) {
      engine->backend = make_backend(model, plan_.backend);
      auto& backend = *engine->backend;
      begin();
      if (companion_ != nullptr) companion_->start(backend);
      all = add_batches(writer, [&] { return capture_next(reader, backend, writer); });
    } else {
      QKSCOPE_ASSERT(companion_ == nullptr);
      begin();
      all = capture_with_workers(reader, model, writer);
    }
    tell("the last batch is computed");
    writer.flush();
    all = all && reader.at_end();
    if (all) journal.mark_complete();
    if (companion_ != nullptr) companion_->finish(all);
    result.forward_seconds = writer.forward_seconds() / static_cast<double>(plan_.workers.size());
    result.input_seconds = reader.seconds_waited();
    leaving_ =
        std::async(std::launch::async, [engine = std::move(engine)]() mutable { engine.reset(); });
  }

  // Giving their memory back takes a while on a GPU: that goes on beside the assembly.
  struct Engine {
    LoadedCheckpoint model;
    std::unique_ptr<Backend> backend = nullptr;
  };

  // What was added to the writer.
  struct Added {
    std::size_t examples = 0;
    std::int64_t tokens = 0;
  };

  std::optional<Added> capture_next(BatchReader& reader, Backend& backend, PartWriter& writer) {
    auto batch = reader.next();
    if (!batch) return {};
    const Added added{batch->examples.size(), batch->tokens()};
    if (companion_ == nullptr)
      writer.capture(*batch, backend);
    else
      capture_and_show(std::move(*batch), backend, writer);
    return added;
  }

  // Every device computes batches; their rows are written in the order of the batches.
  bool capture_with_workers(BatchReader& reader, const LoadedCheckpoint& model,
                            PartWriter& writer) {
    struct Rows {
      HeldRows rows;
      CapturedCount count;
    };
    BatchWorkers<Rows> workers(reader, plan_.workers.size(), [&](std::size_t worker) {
      const std::shared_ptr<Backend> backend = make_backend(model, plan_.workers[worker]);
      return [this, backend](const PreparedBatch& batch) {
        Rows captured;
        captured.count = capture_batch(plan_, *backend, batch, captured.rows);
        return captured;
      };
    });
    return add_batches(writer, [&]() -> std::optional<Added> {
      const auto done = workers.next();
      if (!done) return {};
      writer.append(done->batch, done->result.rows, done->result.count);
      return Added{done->batch.examples.size(), done->batch.tokens()};
    });
  }

  // Adds batch after batch; false when it was stopped.
  bool add_batches(PartWriter& writer, const std::function<std::optional<Added>()>& add_next) {
    Progress progress({.what = "capture",
                       .unit = "examples",
                       .total = total_,
                       .before = writer.examples(),
                       .quiet = options_.quiet});
    const auto start = Clock::now();
    const auto tokens_before = writer.tokens();
    while (!stopped()) {
      const auto batch_start = Clock::now();
      const auto added = add_next();
      if (!added) return true;
      if (batches_ == 0) tell("the first batch is computed");
      log_batch(*added, seconds_since(batch_start));
      const auto rate = static_cast<double>(writer.tokens() - tokens_before) / seconds_since(start);
      progress.update(writer.examples(), fmt::format("{} tokens/s, {} rows",
                                                     format_count(static_cast<std::uint64_t>(rate)),
                                                     format_count(count(writer.rows()))));
      if (options_.on_batch)
        options_.on_batch({writer.examples(), total_, writer.rows(), writer.tokens()});
    }
    return false;
  }

  // Examples that one of the two has from before run for the other alone.
  void capture_and_show(PreparedBatch batch, Backend& backend, PartWriter& writer) {
    const auto lacking = ahead_ - behind_;
    if (lacking > 0 && std::ssize(batch.examples) > lacking) {
      auto& all = batch.examples;
      std::vector<Example> later(std::make_move_iterator(all.begin() + lacking),
                                 std::make_move_iterator(all.end()));
      all.resize(static_cast<std::size_t>(lacking));
      capture_and_show(prepare_batch(plan_, std::move(all)), backend, writer);
      return capture_and_show(prepare_batch(plan_, std::move(later)), backend, writer);
    }
    behind_ += std::ssize(batch.examples);
    if (lacking == 0) {
      ahead_ = behind_;
      writer.capture(batch, backend, &companion_->look_at(batch));
      companion_->take(batch);
    } else if (writer.examples() < companion_->examples()) {
      writer.capture(batch, backend);
    } else {
      companion_->run_alone(batch);
    }
  }

  // How far the run is, for --verbose.
  void tell(std::string_view what) const {
    log::debug("{:.3f} s: {}", seconds_since(start_), what);
  }

  void log_memory() const {
    const auto& memory = plan_.memory;
    if (plan_.backend.device.kind == Device::Kind::cpu) return;
    log::info(
        "{}{}: {} of weights{}, {} of activations at up to {} tokens together, {} free before",
        device_name(plan_.backend.device),
        plan_.workers.size() > 1 ? fmt::format(" and {} more, each", plan_.workers.size() - 1) : "",
        format_bytes(count(memory.held_weights)),
        memory.streams() ? " at a time (they stream)" : "", format_bytes(count(memory.activations)),
        format_count(count(memory.batch_tokens)), format_bytes(count(memory.available)));
  }

  // On the CPU the texts themselves take all cores.
  bool assembles_ahead() const {
    const bool idle_cores = plan_.backend.device.kind != Device::Kind::cpu;
    return options_.shard.count == 1 && plan_.config.output.assemble_ahead.value_or(idle_cores);
  }
  bool watched() const { return !options_.quiet || options_.on_batch; }
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }
  static std::uint64_t count(std::int64_t number) { return static_cast<std::uint64_t>(number); }

  void log_batch(const Added& batch, double seconds) {
    const auto& inference = plan_.config.inference;
    ++batches_;
    if (!inference.debug_logging || batches_ % inference.debug_log_every_n_batches != 0) return;
    log::info("batch {}: {} examples, {} tokens, {:.3f} s", batches_, batch.examples, batch.tokens,
              seconds);
  }

  const RunPlan& plan_;
  const CaptureOptions& options_;
  PassCompanion* companion_;
  Manifest manifest_;
  Clock::time_point start_;
  StoredRun* stored_;
  DataRoot root_;
  std::optional<ExampleSource> source_;
  std::int64_t ahead_ = 0;   // examples that the capture or its companion has
  std::int64_t behind_ = 0;  // examples that both have
  std::int64_t total_ = 0;   // examples; 0: not known
  std::int64_t batches_ = 0;
  std::future<void> leaving_;  // the model
};

CaptureResult run_stored(const StoreAddress& address, const RunPlan& plan,
                         const CaptureOptions& options, PassCompanion* companion) {
  const auto start = Clock::now();
  if (options.overwrite) {
    ExampleSource(plan, options.shard).wait();  // or nothing is replaced
  }
  StoredRun stored(address, StoredRun::kCapture);
  const auto manifest = manifest_with_inputs(plan);
  const InStore in_store{.shard = options.shard,
                         .overwrite = options.overwrite,
                         .quiet = options.quiet,
                         .state_file = layout::kStateFile};
  auto local = options;
  local.overwrite = false;
  return run_in_store<CaptureResult>(stored, manifest, in_store, [&] {
    return Run(plan, local, companion, manifest, start, &stored).run();
  });
}

CaptureResult merge_stored_parts(const StoreAddress& address, bool quiet) {
  const auto start = Clock::now();
  StoredRun stored(address, StoredRun::kCapture);
  auto result = merge_in_store<CaptureResult>(stored, layout::kStateFile, "examples", quiet, [&] {
    return merge_parts(stored.local_root(), quiet);
  });
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace

CaptureResult run_capture(const RunPlan& plan, const CaptureOptions& options,
                          PassCompanion* companion) {
  const auto start = Clock::now();
  const auto address = parse_store_address(plan.config.output.data_root);
  auto result = address ? run_stored(*address, plan, options, companion)
                        : Run(plan, options, companion, manifest_with_inputs(plan), start).run();
  result.seconds = seconds_since(start);
  return result;
}

bool continues_capture(const RunPlan& plan) {
  if (const auto address = parse_store_address(plan.config.output.data_root))
    return StoredRun(*address, StoredRun::kCapture).continues(manifest_with_inputs(plan));
  return DataRoot(plan.config.output.data_root).continues(manifest_with_inputs(plan));
}

CaptureResult merge_parts(const std::string& data_root, bool quiet) {
  if (const auto address = parse_store_address(data_root))
    return merge_stored_parts(*address, quiet);
  const auto start = Clock::now();
  const DataRoot root(data_root);
  CaptureResult result;
  if (root.finished() && root.shards().empty()) {
    result.outcome = Outcome::already_finished;
    return result;
  }
  expect_parts(root, kCaptureParts);  // before a lock makes a folder
  const auto lock = root.lock_whole();
  auto parts = complete_parts(root, kCaptureParts);
  for (const auto& part : parts) {
    result.examples += part.examples();
    result.rows += part.rows();
    result.tokens += part.tokens();
    result.non_finite += part.non_finite();
  }
  Assembly(root, std::move(parts)).finish(quiet);
  result.seconds = result.assembly_seconds = seconds_since(start);
  return result;
}

}  // namespace qkscope
