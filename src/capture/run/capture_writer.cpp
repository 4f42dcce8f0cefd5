// Implements CaptureWriter from qkscope/experimental/engine.h.
#include "base/core/clock.h"
#include "base/core/error.h"
#include "capture/run/batch_reader.h"
#include "capture/run/capture_plan.h"
#include "capture/run/capture_run.h"
#include "capture/run/document_list.h"
#include "capture/writer/capture_part.h"
#include "qkscope/experimental/engine.h"

namespace qkscope {

struct CaptureWriter::State {
  State(const CapturePlan& made, const CaptureOptions& options)
      : plan(made),
        part(plan.run_plan(), make_capture_part_run(plan.run_plan(), options, [] {})),
        list(plan.run_plan(), part.is_open() ? &part.journal() : nullptr, options.shard) {}

  CapturePlan plan;
  Clock::time_point start = Clock::now();
  CapturePart part;
  DocumentList list;
};

CaptureWriter::CaptureWriter(const CapturePlan& plan, const CaptureOptions& options)
    : state_(translate_exceptions([&] { return std::make_unique<State>(plan, options); })) {}

CaptureWriter::~CaptureWriter() = default;
CaptureWriter::CaptureWriter(CaptureWriter&&) noexcept = default;
CaptureWriter& CaptureWriter::operator=(CaptureWriter&&) noexcept = default;

bool CaptureWriter::is_open() const {
  return state_->part.is_open();
}

std::int64_t CaptureWriter::stored() const {
  return is_open() ? state_->list.documents_stored_before() : 0;
}

std::int64_t CaptureWriter::documents() const {
  return state_->list.documents_passed();
}

bool CaptureWriter::wants(const WriterDocument& document) {
  return translate_exceptions([&] { return state_->list.next_to_store(document).has_value(); });
}

void CaptureWriter::add(const WriterDocument& document, const RunPass& run) {
  translate_exceptions([&] {
    const auto example = state_->list.next_to_store(document);
    if (!example) return;
    const auto& plan = state_->plan.run_plan();
    const auto prepared = prepare_batch(plan.manifest, {*example});
    // Buffer the rows in memory, so that an engine failure leaves no partial document.
    state_->part.writer().append(prepared, capture_to_memory(plan, prepared, run));
    state_->list.count_document(*example);
  });
}

void CaptureWriter::flush() {
  if (is_open()) translate_exceptions([&] { state_->part.writer().flush(); });
}

CaptureResult CaptureWriter::finish() {
  return translate_exceptions([&] {
    auto& part = state_->part;
    CaptureResult result;
    if (part.is_open()) {
      state_->list.check_all_passed();
      result.forward_seconds = part.writer().forward_seconds();
      part.close(true);
    }
    copy_run_totals(result, part.finish());
    result.seconds = seconds_since(state_->start);
    return result;
  });
}

}  // namespace qkscope
