// Implements StatsWriter from qkscope/experimental/engine.h.
#include <optional>
#include <utility>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "capture/run/batch_reader.h"
#include "capture/run/example_source.h"
#include "capture/stats_run/stats_pass.h"
#include "capture/stats_run/stats_run.h"
#include "capture/writer/part_run.h"
#include "qkscope/experimental/engine.h"

namespace qkscope {

struct StatsWriter::State {
  State(const StatsPlan& made, const StatsOptions& options)
      : plan(made),
        session(make_statistics_part_run(plan.run_plan(), options)),
        list(plan.run_plan().run, session.is_open() ? &session.journal() : nullptr, options.shard),
        feed(plan.run_plan().run.engine->model()) {
    if (!session.is_open()) return;
    part.emplace(session.journal(), StatsRunState{plan.run_plan().statistics, {}});
    pass.emplace(plan.run_plan(), part->state());
  }

  StatsPlan plan;
  Clock::time_point start = Clock::now();
  PartSession session;
  DocumentList list;
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
  return is_open() ? state_->list.documents_stored_before() : 0;
}

std::int64_t StatsWriter::documents() const {
  return state_->list.documents_passed();
}

bool StatsWriter::wants(const WriterDocument& document) {
  return translate_exceptions([&] { return state_->list.next_to_store(document).has_value(); });
}

void StatsWriter::add(const WriterDocument& document, const RunPass& run) {
  translate_exceptions([&] {
    const auto example = state_->list.next_to_store(document);
    if (!example) return;
    const auto prepared = prepare_batch(state_->plan.run_plan().run.manifest, {*example});
    // Add sums only after all layers have arrived: a failing engine leaves no partial sums.
    auto held =
        state_->pass->compute_batch(prepared, [&](const Batch& batch, LayerStatistics& statistics) {
          state_->feed.run(batch, run, statistics);
        });
    state_->part->add_batch(prepared, state_->pass->add_batch(prepared, std::move(held)));
    state_->list.count_document(*example);
  });
}

void StatsWriter::flush() {
  if (is_open()) translate_exceptions([&] { state_->part->flush(); });
}

StatsResult StatsWriter::finish() {
  return translate_exceptions([&] {
    StatsResult result;
    if (is_open()) {
      state_->list.check_stored_documents_were_passed();
      state_->part->flush();
      state_->session.journal().mark_complete();
    }
    copy_run_totals(result, state_->session.finish());
    result.seconds = seconds_since(state_->start);
    return result;
  });
}

}  // namespace qkscope
