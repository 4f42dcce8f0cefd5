#include "capture/capture_run.h"

#include <future>

#include <fmt/format.h>

#include "capture/assemble.h"
#include "capture/batch_reader.h"
#include "capture/capture_config.h"
#include "capture/part_writer.h"
#include "captures/data_root.h"
#include "captures/segment.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "device/device.h"
#include "qkscope/log.h"

namespace qkscope {
namespace {

using Outcome = CaptureResult::Outcome;

// Passes the source over what the journal says is done.
void skip_done(const Journal& journal, ExampleSource& source) {
  for (const auto& entry : journal.entries()) {
    const SegmentReader segment(journal.segment_path(entry.segment),
                                journal.manifest().groups.size());
    source.skip(segment.example_table());
  }
}

class Run {
 public:
  Run(const RunPlan& plan, const CaptureOptions& options)
      : plan_(plan), options_(options), root_(plan.config.output.data_root) {}

  CaptureResult run() {
    CaptureResult result;
    if (root_.finished() && !options_.overwrite) return already_finished();
    const auto locks = root_.lock(options_.shard);
    if (options_.overwrite) root_.remove_capture(plan_.manifest.identity, options_.shard);
    if (root_.finished()) return already_finished();
    root_.check_parts(plan_.manifest.identity, options_.shard);
    const auto folder = root_.part(options_.shard);
    if (!Journal::exists(folder)) Journal::create(folder, plan_.manifest);
    Journal journal(folder);
    journal.remove_strays();
    if (!journal.complete()) capture(journal, result);
    result.examples = journal.examples();
    result.rows = journal.rows();
    result.tokens = journal.tokens();
    if (!journal.complete()) {
      result.outcome = Outcome::interrupted;
    } else if (options_.shard.count > 1) {
      result.outcome = Outcome::part_finished;
    } else {
      const auto start = Clock::now();
      assemble(root_, {journal}, options_.quiet);
      result.assembly_seconds = seconds_since(start);
      result.outcome = Outcome::finished;
    }
    return result;
  }

 private:
  CaptureResult already_finished() {
    root_.check_finished(plan_.manifest.identity);
    root_.remove_left_parts();
    CaptureResult result;
    result.outcome = Outcome::already_finished;
    return result;
  }

  void capture(Journal& journal, CaptureResult& result) {
    const auto start = Clock::now();
    ExampleSource source(plan_, options_.shard);
    auto counting = count_documents(source);
    if (journal.examples() > 0)
      log::info("continuing after {} examples", format_count(count(journal.examples())));
    skip_done(journal, source);
    BatchReader reader(plan_, source, options_.stop);  // reads while the model is loaded
    const auto model = load_model(plan_.model_folder, config_overrides(plan_.config.model));
    const auto backend = make_backend(model, plan_.backend);
    log_memory();
    total_ = counting.get();
    result.load_seconds = seconds_since(start);
    PartWriter writer(plan_, *backend, journal);
    capture_batches(reader, writer);
    writer.flush();
    if (reader.at_end()) journal.mark_complete();
    result.forward_seconds = writer.forward_seconds();
    result.input_seconds = reader.seconds_waited();
  }

  // Goes on while the model is loaded. Nobody asks for it in a quiet run.
  std::future<std::int64_t> count_documents(const ExampleSource& source) const {
    const bool watched = !options_.quiet || options_.on_batch;
    return std::async(std::launch::async,
                      [&source, watched] { return watched ? source.count_documents() : 0; });
  }

  void capture_batches(BatchReader& reader, PartWriter& writer) {
    Progress progress({.what = "capture",
                       .unit = "examples",
                       .total = total_,
                       .before = writer.examples(),
                       .quiet = options_.quiet});
    const auto start = Clock::now();
    const auto tokens_before = writer.tokens();
    while (!stopped()) {
      const auto batch = reader.next();
      if (!batch) return;
      const auto batch_start = Clock::now();
      writer.capture(*batch);
      log_batch(*batch, seconds_since(batch_start));
      const auto rate = static_cast<double>(writer.tokens() - tokens_before) / seconds_since(start);
      progress.update(writer.examples(), fmt::format("{} tokens/s, {} rows",
                                                     format_count(static_cast<std::uint64_t>(rate)),
                                                     format_count(count(writer.rows()))));
      if (options_.on_batch)
        options_.on_batch({writer.examples(), total_, writer.rows(), writer.tokens()});
    }
  }

  void log_memory() const {
    const auto& memory = plan_.memory;
    if (plan_.backend.device.kind == Device::Kind::cpu) return;
    log::info("{}: {} of weights{}, {} of activations at up to {} tokens together, {} free before",
              device_name(plan_.backend.device), format_bytes(count(memory.held_weights)),
              memory.streams() ? " at a time (they stream)" : "",
              format_bytes(count(memory.activations)), format_count(count(memory.batch_tokens)),
              format_bytes(count(memory.available)));
  }

  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }
  static std::uint64_t count(std::int64_t number) { return static_cast<std::uint64_t>(number); }

  void log_batch(const PreparedBatch& batch, double seconds) {
    const auto& inference = plan_.config.inference;
    if (!inference.debug_logging || ++batches_ % inference.debug_log_every_n_batches != 0) return;
    log::info("batch {}: {} examples, {} tokens, {:.3f} s", batches_, batch.examples.size(),
              batch.tokens(), seconds);
  }

  const RunPlan& plan_;
  const CaptureOptions& options_;
  DataRoot root_;
  std::int64_t total_ = 0;  // examples; 0: not known
  std::int64_t batches_ = 0;
};

}  // namespace

CaptureResult run_capture(const RunPlan& plan, const CaptureOptions& options) {
  const auto start = Clock::now();
  auto result = Run(plan, options).run();
  result.seconds = seconds_since(start);
  return result;
}

CaptureResult merge_parts(const std::string& data_root, bool quiet) {
  const auto start = Clock::now();
  const DataRoot root(data_root);
  CaptureResult result;
  if (root.finished() && root.shards().empty()) {
    result.outcome = Outcome::already_finished;
    return result;
  }
  const auto shards = root.shards();
  if (shards.empty())
    bad_input("{}: there are no parts of a capture; run 'qkscope capture --shard i/n' first",
              data_root);
  const auto lock = root.lock_whole();
  std::vector<Journal> parts;
  std::vector<std::string> missing;
  for (std::int64_t index = 0; index < shards.front().count; ++index) {
    const Shard shard{index, shards.front().count};
    if (!Journal::exists(root.part(shard))) {
      missing.push_back(fmt::format("{}/{} (not started)", index, shard.count));
      continue;
    }
    parts.emplace_back(root.part(shard));
    if (!parts.back().complete())
      missing.push_back(fmt::format("{}/{} (unfinished, {} examples)", index, shard.count,
                                    parts.back().examples()));
  }
  if (!missing.empty())
    bad_input("{}: shards are missing: {}; run them with --shard first", data_root,
              fmt::join(missing, ", "));
  for (const auto& part : parts) {
    result.examples += part.examples();
    result.rows += part.rows();
    result.tokens += part.tokens();
  }
  assemble(root, parts, quiet);
  result.seconds = result.assembly_seconds = seconds_since(start);
  return result;
}

}  // namespace qkscope
