#include "capture/stats_run/stats_run.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"
#include "base/io/checksum.h"
#include "capture/format/layout.h"
#include "capture/format/stored_run.h"
#include "capture/run/batch_reader.h"
#include "capture/run/capture_plan.h"
#include "capture/run/capture_run.h"
#include "capture/run/example_source.h"
#include "capture/stats_format/stats_file.h"
#include "capture/stats_run/stats_pass.h"
#include "capture/stats_run/stats_plan.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/statistics/moments.h"
#include "qkscope/experimental/log.h"

namespace qkscope {
namespace {

constexpr std::int64_t kRowGroup = 4096;

constexpr const char* kFiles[] = {stats_layout::kSumsFile,      stats_layout::kChannelsFile,
                                  stats_layout::kAttentionFile, stats_layout::kDocumentsFile,
                                  stats_layout::kDistanceFile,  stats_layout::kRetrievalFile,
                                  layout::kExamplesFile};
constexpr const char* kFolders[] = {stats_layout::kColumnsFolder};

Manifest make_stats_manifest(const StatsRunPlan& plan) {
  auto manifest = make_fingerprinted_manifest(plan.run);
  const auto& stats = plan.config.stats;
  const auto add = [&](const char* what, const std::string& file) {
    manifest.identity[kInputs][what] = {{file, file_fingerprint(file)}};
  };
  if (!stats.retrieval.empty()) add("retrieval", stats.retrieval);
  if (!stats.fp8_scales.empty())
    add("fp8_scales", resolve_exported_file(stats.fp8_scales, kKeyScalesFile));
  if (!stats.q_filters.empty())
    add("q_filters", resolve_exported_file(stats.q_filters, kKeyFiltersFile));
  return manifest;
}

// Merges the sums of all parts in order. Lengths and position sums follow the dataset order.
Statistics merge_part_sums(const std::vector<Journal>& parts) {
  // A shard without documents is valid, because there may be more shards than texts.
  auto part =
      std::ranges::find_if(parts, [](const Journal& each) { return !each.entries().empty(); });
  if (part == parts.end()) reject("{}: none of the shards has a document", parts.front().folder());
  const auto& first = *part;
  auto statistics = load_last_stats_state(first).statistics;
  for (++part; part != parts.end(); ++part)
    if (!part->entries().empty())
      merge_statistics(statistics, load_last_stats_state(*part).statistics, first.folder(),
                       part->folder());
  statistics.configuration = parts.front().manifest().identity.dump();
  statistics.lengths.clear();
  for_each_example(parts, [&](const ExampleRecord& example) {
    if (example.tokens > 0) statistics.lengths.push_back(example.tokens);
  });
  update_position_sums(statistics);
  copy_pre_to_post_rope_moments(statistics);
  return statistics;
}

StatsPass::PassRunner make_pass_runner(Backend& backend) {
  return [&](const Batch& batch, LayerStatistics& statistics) {
    NullObserver nobody;
    forward(backend, batch, nobody, statistics);
  };
}

// Accumulates statistics during the forward passes of a capture.
class CapturePassStatistics : public SharedPassConsumer {
 public:
  CapturePassStatistics(const StatsRunPlan& plan, const Shard& shard, Journal& journal)
      : plan_(plan), shard_(shard), journal_(journal), part_(journal, {plan.statistics, {}}) {}

  std::int64_t example_count() const override { return part_.example_count(); }
  void begin_run(Backend& backend) override {
    if (!part_.has_segments() && shard_.index == 0)
      part_.state().statistics.retrieval = run_retrieval_trials(plan_, backend);
    backend_ = &backend;
    pass_.emplace(plan_, part_.state());
  }
  LayerStatistics& begin_batch(const ExampleBatch& batch) override {
    pass_->begin_batch(batch);
    return *pass_;
  }
  void add_observed_batch(const ExampleBatch& batch) override {
    part_.add_batch(batch, pass_->finish_batch());
  }
  void run_unshared_pass(const ExampleBatch& batch) override {
    part_.add_batch(batch, pass_->add_batch(batch, make_pass_runner(*backend_)));
  }
  void finish_run(bool is_complete) override {
    part_.flush();
    if (is_complete) journal_.mark_complete();
  }

 private:
  const StatsRunPlan& plan_;
  Shard shard_;
  Journal& journal_;
  StatsPartWriter part_;
  Backend* backend_ = nullptr;  // backend that runs the capture
  std::optional<StatsPass> pass_;
};

class StatisticsRun {
 public:
  StatisticsRun(const StatsRunPlan& plan, const StatsOptions& options,
                const CaptureRequest* capture)
      : plan_(plan), options_(options), capture_(capture) {}

  StatsAndCaptureResult run() {
    auto run = make_stats_shard_options(plan_, options_);
    run.check_inputs = [&] { ExampleSource(plan_.run, options_.shard).wait_for_tokenizer(); };
    ShardRun session(std::move(run));
    if (session.is_open() && capture_ != nullptr) {
      CapturePassStatistics statistics(plan_, options_.shard, session.journal());
      captured_ = run_capture(capture_->plan, capture_->options, &statistics);
      result_.load_seconds = captured_->load_seconds;
      result_.forward_seconds = captured_->forward_seconds;
    }
    if (session.is_open() && !is_stop_requested()) accumulate_part(session.journal());
    copy_run_totals(result_, session.finish(assemble_statistics));
    result_.seconds = seconds_since(start_);
    return {result_, captured_};
  }

 private:
  void accumulate_part(Journal& journal) {
    const auto start = Clock::now();
    ExampleSource source(plan_.run, options_.shard);
    StatsPartWriter part(journal, {plan_.statistics, {}});
    // A new run checks document ids for duplicates; a resumed run did so when it began.
    auto counting = source.scan_examples_async(!part.has_segments() && source.has_dataset_ids(),
                                               shows_progress());
    if (part.has_segments()) {
      log::info("continuing after {} documents", format_count(journal.example_count()));
      for_each_example({journal},
                       [&](const ExampleRecord& example) { source.skip_stored_example(example); });
    }
    BatchReader reader(plan_.run, source, options_.stop);  // reads while the model loads
    const auto finish = [&](bool all) {
      part.flush();
      if (all && reader.at_end()) journal.mark_complete();
    };
    if (plan_.run.engine) {
      source.wait_for_tokenizer();
      total_ = counting.get();
      auto& engine = *plan_.run.engine;
      ExternalEngineObserver feed(engine.model());
      const auto pass = [&](const Batch& rows, Observer& observer) { engine.run(rows, observer); };
      return finish(
          add_batches_serially(reader, part, [&](const Batch& batch, LayerStatistics& statistics) {
            feed.run_batch(batch, pass, statistics);
          }));
    }
    const auto model = load_unprocessed_checkpoint(plan_.run.model_folder,
                                                   config_overrides(plan_.run.config.model));
    const bool alone = plan_.run.workers.size() == 1;
    const bool runs_trials =
        !part.has_segments() && options_.shard.index == 0 && !plan_.config.stats.retrieval.empty();
    std::unique_ptr<Backend> backend;
    if (alone || runs_trials) backend = make_backend(model, plan_.run.backend);
    source.wait_for_tokenizer();
    total_ = counting.get();
    result_.load_seconds = seconds_since(start);
    if (runs_trials) part.state().statistics.retrieval = run_retrieval_trials(plan_, *backend);
    if (!alone) backend.reset();
    finish(alone ? add_batches_serially(reader, part, make_pass_runner(*backend))
                 : add_batches_with_workers(reader, model, part));
  }

  bool add_batches_serially(BatchReader& reader, StatsPartWriter& part,
                            const StatsPass::PassRunner& run) {
    StatsPass pass(plan_, part.state());
    return add_batches(part, [&] {
      const auto batch = reader.next();
      if (!batch) return false;
      const auto start = Clock::now();
      auto documents = pass.add_batch(*batch, run);
      result_.forward_seconds += seconds_since(start);
      part.add_batch(*batch, std::move(documents));
      return true;
    });
  }

  // Devices compute batches concurrently, but statistics are added in batch order.
  bool add_batches_with_workers(BatchReader& reader, const LoadedCheckpoint& model,
                                StatsPartWriter& part) {
    struct ComputedBatch {
      BatchStatistics held;
      double seconds = 0.0;
    };
    const auto count = plan_.run.workers.size();
    StatsPass pass(plan_, part.state());
    std::vector<std::unique_ptr<StatsPass>> passes;
    for (std::size_t i = 0; i < count; ++i)
      passes.push_back(std::make_unique<StatsPass>(plan_, part.state()));
    const auto make = [&](std::size_t worker) {
      const std::shared_ptr<Backend> backend = make_backend(model, plan_.run.workers[worker]);
      return [backend, &own = *passes[worker]](const ExampleBatch& batch) {
        const auto start = Clock::now();
        auto held = own.compute_batch_statistics(batch, make_pass_runner(*backend));
        return ComputedBatch{std::move(held), seconds_since(start)};
      };
    };
    BatchWorkers<ComputedBatch> workers(reader, count, make,
                                        [&] { return pass.allows_concurrent_batches(); });
    return add_batches(part, [&] {
      auto done = workers.next_result();
      if (!done) return false;
      result_.forward_seconds += done->result.seconds / static_cast<double>(count);
      part.add_batch(done->batch, pass.add_batch(done->batch, std::move(done->result.held)));
      return true;
    });
  }

  // Calls `add_next` until there are no more texts (returns true) or the run is stopped (false).
  bool add_batches(StatsPartWriter& part, const std::function<bool()>& add_next) {
    Progress progress({.what = "stats",
                       .unit = "documents",
                       .total = total_,
                       .before = part.example_count(),
                       .quiet = options_.quiet});
    const auto start = Clock::now();
    const auto tokens_before = part.token_count();
    while (!is_stop_requested()) {
      if (!add_next()) return true;
      const auto rate = static_cast<std::uint64_t>(
          static_cast<double>(part.token_count() - tokens_before) / seconds_since(start));
      progress.update(part.example_count(), fmt::format("{} tokens/s", format_count(rate)));
      if (options_.on_batch) options_.on_batch({part.example_count(), total_, part.token_count()});
    }
    return false;
  }

  bool shows_progress() const { return !options_.quiet || options_.on_batch; }
  bool is_stop_requested() const { return options_.stop != nullptr && options_.stop->load(); }

  const StatsRunPlan& plan_;
  const StatsOptions& options_;
  const CaptureRequest* capture_;
  Clock::time_point start_ = Clock::now();
  StatsResult result_;
  std::optional<CaptureResult> captured_;
  std::int64_t total_ = 0;  // documents of the shard; 0 when unknown
};

}  // namespace

const RunKind kStatisticsRun = {
    .name = StoredRun::kStatistics,
    .noun = "statistics",
    .command = "stats",
    .unit = "documents",
    .state_file = stats_layout::kStateFile,
    .files = kFiles,
    .folders = kFolders,
    .no_configuration =
        "{state_file}: says nothing about the run that made it; replace it with --overwrite",
    .other_run =
        "{root}: holds statistics of another run: {difference}; choose another "
        "output.data_root, or replace them with --overwrite",
};

void copy_run_totals(StatsResult& result, const ShardRunResult& run) {
  result.outcome = run.outcome;
  result.examples = run.examples;
  result.tokens = run.tokens;
}

void assemble_statistics(const DataRoot& root, const std::vector<Journal>& parts) {
  const auto statistics = merge_part_sums(parts);
  const auto documents = open_part_documents(parts);
  write_final_statistics(root, statistics, *documents, [&](ExamplesWriter& writer) {
    for_each_example(parts, [&](const ExampleRecord& example) { writer.append(example); });
  });
}

ShardRunOptions make_stats_shard_options(const StatsRunPlan& plan, const StatsOptions& options) {
  const auto& data_root = plan.config.run.output.data_root;
  if (!parse_store_uri(data_root)) check_no_finished_capture(data_root);
  return {.kind = kStatisticsRun,
          .data_root = data_root,
          .inputs = snapshot_inputs(plan.run),
          .manifest = make_stats_manifest(plan),
          .shard = options.shard,
          .overwrite = options.overwrite,
          .quiet = options.quiet,
          .check_inputs = [] {}};
}

StatsAndCaptureResult run_stats(const StatsRunPlan& plan, const StatsOptions& options,
                                const CaptureRequest* capture) {
  return StatisticsRun(plan, options, capture).run();
}

StatsResult merge_stats_shards(const std::string& folder) {
  const auto start = Clock::now();
  StatsResult result;
  copy_run_totals(result, translate_exceptions([&] {
                    return merge_all_parts(kStatisticsRun, folder, true, assemble_statistics);
                  }));
  result.seconds = seconds_since(start);
  return result;
}

void check_no_finished_capture(const std::string& folder) {
  if (const DataRoot root(folder); root.is_finished())
    reject("{}: holds a capture; statistics need a folder of their own: --set output.data_root=DIR",
           root.path());
}

void write_final_statistics(const DataRoot& root, const Statistics& statistics,
                            DocumentSource& documents,
                            const std::function<void(ExamplesWriter&)>& add_examples) {
  root.make_final_folder();
  ExamplesWriter writer(root.final_folder() + "/" + layout::kExamplesFile, kRowGroup);
  add_examples(writer);
  writer.finish();
  write_statistics(root.final_folder(), statistics, documents);
}

}  // namespace qkscope
