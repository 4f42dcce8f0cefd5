#include "capture/run.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "capture/assemble.h"
#include "capture/data_root.h"
#include "capture/part_writer.h"
#include "capture/segment.h"
#include "core/error.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/text.h"

namespace qkscope {
namespace {

using Clock = std::chrono::steady_clock;
using Outcome = CaptureResult::Outcome;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Passes the source over what the journal says is done.
void skip_done(const Journal& journal, ExampleSource& source) {
  for (const auto& entry : journal.entries()) {
    const SegmentReader segment(journal.segment_path(entry.segment),
                                journal.manifest().groups.size());
    source.skip(segment.example_table());
  }
}

bool read_batch(ExampleSource& source, std::size_t size, std::vector<Example>& batch) {
  batch.resize(size);
  std::size_t count = 0;
  while (count < size && source.next(batch[count])) ++count;
  batch.resize(count);
  return count > 0;
}

class Run {
 public:
  Run(const CapturePlan& plan, const CaptureOptions& options)
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
      assemble(root_, {journal}, options_.quiet);
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
    ExampleSource source(plan_, options_.shard);
    const bool watched = !options_.quiet || options_.on_batch;
    const auto total = watched ? source.count_documents() : 0;
    const auto model = load_model(plan_.model_folder, plan_.config.model.config_overrides);
    if (journal.examples() > 0)
      log::info("continuing after {} examples", format_count(count(journal.examples())));
    skip_done(journal, source);
    Progress progress({.what = "capture",
                       .unit = "examples",
                       .total = total,
                       .before = journal.examples(),
                       .quiet = options_.quiet});
    PartWriter writer(plan_, model, journal);
    const auto start = Clock::now();
    const auto tokens_before = writer.tokens();
    const auto batch_size = static_cast<std::size_t>(plan_.config.inference.batch_size);
    std::vector<Example> batch;
    bool more = true;
    while (!stopped() && (more = read_batch(source, batch_size, batch))) {
      const auto batch_start = Clock::now();
      writer.capture(batch, source);
      log_batch(batch, seconds_since(batch_start));
      const auto rate = static_cast<double>(writer.tokens() - tokens_before) / seconds_since(start);
      progress.update(writer.examples(), fmt::format("{} tokens/s, {} rows",
                                                     format_count(static_cast<std::uint64_t>(rate)),
                                                     format_count(count(writer.rows()))));
      if (options_.on_batch)
        options_.on_batch({writer.examples(), total, writer.rows(), writer.tokens()});
    }
    writer.flush();
    if (!more) journal.mark_complete();
    result.seconds = seconds_since(start);
    result.forward_seconds = writer.forward_seconds();
  }

  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }
  static std::uint64_t count(std::int64_t number) { return static_cast<std::uint64_t>(number); }

  void log_batch(const std::vector<Example>& batch, double seconds) {
    const auto& inference = plan_.config.inference;
    if (!inference.debug_logging || ++batches_ % inference.debug_log_every_n_batches != 0) return;
    std::int64_t tokens = 0;
    for (const auto& example : batch) tokens += example.record.tokens;
    log::info("batch {}: {} examples, {} tokens, {:.3f} s", batches_, batch.size(), tokens,
              seconds);
  }

  const CapturePlan& plan_;
  const CaptureOptions& options_;
  DataRoot root_;
  std::int64_t batches_ = 0;
};

}  // namespace

CaptureResult run_capture(const CapturePlan& plan, const CaptureOptions& options) {
  return Run(plan, options).run();
}

CaptureResult merge_capture(const std::string& data_root, bool quiet) {
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
  return result;
}

}  // namespace qkscope
