// Runs and merges statistics (qkscope/statistics.h) and implements StatsWriter (engine.h).
#include "qkscope/statistics.h"

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/tables/parquet_stream.h"
#include "base/yaml/yaml_config.h"
#include "capture/format/layout.h"
#include "capture/format/stored_run.h"
#include "capture/run/batch_reader.h"
#include "capture/run/example_source.h"
#include "capture/stats_format/stats_file.h"
#include "capture/stats_run/stats_pass.h"
#include "capture/stats_run/stats_plan.h"
#include "capture/stats_run/stats_run.h"
#include "engine/statistics/moments.h"
#include "qkscope/experimental/engine.h"

namespace qkscope {
namespace {

// Reads the per-document attention statistics of several folders, one folder after another.
class MergedDocumentReader : public DocumentSource {
 public:
  MergedDocumentReader(const std::vector<std::string>& folders, const Statistics& statistics)
      : folders_(folders), statistics_(statistics) {}

  bool next(DocumentAttention& document) override {
    while (true) {
      if (source_ && source_->next(document)) return true;
      if (at_ == folders_.size()) return false;
      source_ = open_document_source(folders_[at_++], statistics_);
    }
  }

 private:
  const std::vector<std::string>& folders_;
  const Statistics& statistics_;
  std::size_t at_ = 0;
  std::unique_ptr<DocumentSource> source_;
};

// Visits the examples of a finished folder with one row group in memory at a time.
void for_each_example_in_folder(const std::string& folder,
                                const std::function<void(const ExampleRecord&)>& take) {
  const auto path = folder + "/" + layout::kExamplesFile;
  const ParquetTableReader file(path);
  for (int group = 0; group < file.row_group_count(); ++group) {
    const auto table = file.read_row_group(group);
    const auto column = [&](const char* name) -> const Table::Column& {
      const auto* found = table.find(name);
      if (found == nullptr) reject("{}: has no column '{}'; make the statistics again", path, name);
      return *found;
    };
    const auto& keys = column("example_key").integers;
    const auto& sources = column("source_id").texts;
    const auto& tokens = column("tokens").integers;
    const auto& truncated = column("truncated").integers;
    const auto rows = static_cast<std::size_t>(table.rows());
    for (const auto size : {keys.size(), sources.size(), tokens.size(), truncated.size()})
      if (size != rows) reject("{}: not a table of examples; make the statistics again", path);
    for (std::size_t i = 0; i < rows; ++i)
      take({.key = keys[i],
            .source_id = sources[i],
            .tokens = static_cast<std::int32_t>(tokens[i]),
            .truncated = truncated[i] != 0});
  }
}

}  // namespace

StatsConfig read_stats_config(const std::string& file, const std::vector<std::string>& overrides) {
  return translate_exceptions([&] {
    auto config = read_stats_config(load_yaml(file, overrides));
    config.run.file = file;
    return config;
  });
}

StatsConfig parse_stats_config(const std::string& yaml, const std::vector<std::string>& overrides) {
  return translate_exceptions(
      [&] { return read_stats_config(parse_yaml(yaml, "config", overrides)); });
}

StatsPlan::StatsPlan(std::shared_ptr<const StatsRunPlan> plan)
    : plan_(std::move(plan)),
      config_(&plan_->config),
      run_(std::shared_ptr<const RunPlan>(plan_, &plan_->run)) {}

StatsPlan make_stats_plan(const StatsConfig& config, const ComputeOptions& compute) {
  return make_stats_plan(config, compute, nullptr);
}

StatsPlan make_stats_plan(const StatsConfig& config, const ComputeOptions& compute,
                          std::shared_ptr<ExternalEngine> engine) {
  return translate_exceptions([&] {
    return StatsPlan(std::make_shared<const StatsRunPlan>(
        make_stats_run_plan(config, compute, std::move(engine))));
  });
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StatsResult, examples, tokens, seconds, load_seconds,
                                   forward_seconds)

std::string result_json(const StatsResult& result) {
  return translate_exceptions([&] {
    Json json = result;
    json["outcome"] = outcome_name(result.outcome);
    return json.dump(2);
  });
}

StatsResult run_stats(const StatsPlan& plan, const StatsOptions& options) {
  return translate_exceptions([&] { return run_stats(plan.run_plan(), options).statistics; });
}

bool holds_statistics(const std::string& folder) {
  return translate_exceptions([&] {
    if (const auto address = parse_store_uri(folder))
      return stored_run_kind(*address) == StoredRun::kStatistics;
    const DataRoot statistics(folder, kStatisticsRun);
    if (statistics.is_finished()) return true;
    const auto shards = statistics.list_started_shards();
    return !shards.empty() &&
           Journal(statistics.part_folder(shards.front())).manifest().identity.contains("stats");
  });
}

StatsResult merge_stats_folders(const std::vector<std::string>& folders, const std::string& out) {
  return translate_exceptions([&] {
    if (folders.empty()) reject("no folders of statistics to merge");
    const auto start = Clock::now();
    const DataRoot folder(out, kStatisticsRun);
    check_no_finished_capture(out);
    if (folder.is_finished()) reject("{}: holds statistics already; choose another --out", out);
    auto statistics = read_statistics(folders.front());
    Json configurations = Json::array({parse_json(statistics.configuration, folders.front())});
    for (std::size_t i = 1; i < folders.size(); ++i) {
      const auto part = read_statistics(folders[i]);
      merge_statistics(statistics, part, folders.front(), folders[i]);
      configurations.push_back(parse_json(part.configuration, folders[i]));
    }
    // Read all examples before writing anything, so that damaged input leaves no partial output.
    for (const auto& each : folders) for_each_example_in_folder(each, [](const ExampleRecord&) {});
    statistics.configuration = Json{{"merged", configurations}}.dump();
    const auto lock = folder.lock({});
    MergedDocumentReader documents(folders, statistics);
    write_final_statistics(folder, statistics, documents, [&](ExamplesWriter& writer) {
      for (const auto& each : folders)
        for_each_example_in_folder(each,
                                   [&](const ExampleRecord& example) { writer.append(example); });
    });
    folder.move_final_files_to_root();
    StatsResult result;
    result.examples = std::ssize(statistics.lengths);
    for (const auto length : statistics.lengths) result.tokens += length;
    result.seconds = seconds_since(start);
    return result;
  });
}

struct StatsWriter::State {
  State(const StatsPlan& made, const StatsOptions& options)
      : plan(made),
        session(make_stats_shard_options(plan.run_plan(), options)),
        tracker(plan.run_plan().run, session.is_open() ? &session.journal() : nullptr,
                options.shard),
        feed(plan.run_plan().run.engine->model()) {
    if (!session.is_open()) return;
    part.emplace(session.journal(), StatsRunState{plan.run_plan().statistics, {}});
    pass.emplace(plan.run_plan(), part->state());
  }

  StatsPlan plan;
  Clock::time_point start = Clock::now();
  ShardRun session;
  DocumentReceiver tracker;
  ExternalEngineObserver feed;
  std::optional<StatsPartWriter> part;
  std::optional<StatsPass> pass;
};

StatsWriter::StatsWriter(const StatsPlan& plan, const StatsOptions& options)
    : state_(translate_exceptions([&] { return std::make_unique<State>(plan, options); })) {}

StatsWriter::~StatsWriter() = default;
StatsWriter::StatsWriter(StatsWriter&&) noexcept = default;
StatsWriter& StatsWriter::operator=(StatsWriter&&) noexcept = default;

bool StatsWriter::is_open() const {
  return state_->part.has_value();
}

std::int64_t StatsWriter::stored() const {
  return is_open() ? state_->tracker.previously_stored_document_count() : 0;
}

std::int64_t StatsWriter::documents() const {
  return state_->tracker.documents_received();
}

bool StatsWriter::wants(const WriterDocument& document) {
  return translate_exceptions(
      [&] { return state_->tracker.make_example_unless_stored(document).has_value(); });
}

void StatsWriter::add(const WriterDocument& document, const RunPass& run) {
  translate_exceptions([&] {
    const auto example = state_->tracker.make_example_unless_stored(document);
    if (!example) return;
    const auto prepared = prepare_batch(state_->plan.run_plan().run.manifest, {*example});
    // Add sums only after all layers have arrived: a failing engine leaves no partial sums.
    auto held = state_->pass->compute_batch_statistics(
        prepared, [&](const Batch& batch, LayerStatistics& statistics) {
          state_->feed.run_batch(batch, run, statistics);
        });
    state_->part->add_batch(prepared, state_->pass->add_batch(prepared, std::move(held)));
    state_->tracker.mark_document_received(*example);
  });
}

void StatsWriter::flush() {
  if (is_open()) translate_exceptions([&] { state_->part->flush(); });
}

StatsResult StatsWriter::finish() {
  return translate_exceptions([&] {
    StatsResult result;
    if (is_open()) {
      state_->tracker.check_received_all_stored_documents();
      state_->part->flush();
      state_->session.journal().mark_complete();
    }
    copy_run_totals(result, state_->session.finish(assemble_statistics));
    result.seconds = seconds_since(state_->start);
    return result;
  });
}

}  // namespace qkscope
