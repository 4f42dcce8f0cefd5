// Implements CaptureWriter (experimental/engine.h) and DocumentReceiver (example_source.h).
#include <limits>
#include <span>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/checksum.h"
#include "capture/format/segment.h"
#include "capture/run/batch_reader.h"
#include "capture/run/capture_plan.h"
#include "capture/run/capture_run.h"
#include "capture/run/example_source.h"
#include "capture/writer/assemble.h"
#include "input/texts/dataset_files.h"
#include "qkscope/experimental/engine.h"

namespace qkscope {
DocumentReceiver::DocumentReceiver(const RunPlan& plan, const Journal* journal, const Shard& shard)
    : plan_(plan),
      journal_(journal),
      shard_(shard),
      stored_(journal == nullptr ? std::numeric_limits<std::int64_t>::max()
                                 : journal->example_count()) {}

Example DocumentReceiver::make_example(const WriterDocument& document) const {
  Example example;
  auto& record = example.record;
  record.row = passed_ * shard_.count + shard_.index;
  const auto id = document.number        ? ExampleId::from_number(*document.number)
                  : !document.id.empty() ? ExampleId::from_string(document.id)
                                         : ExampleId::from_number(record.row);
  record.key = derive_example_key(id);
  record.source_id = id.text;
  record.tokens = static_cast<std::int32_t>(document.ids.size());
  record.text = checksum_of(
      {reinterpret_cast<const char*>(document.ids.data()), std::span(document.ids).size_bytes()});
  example.ids = document.ids;
  example.token_strings = document.token_strings;
  if (keys_.contains(record.key))
    reject("document {}: the id {} was passed before; give each document an id of its own",
           record.row, quote_text(record.source_id));
  const auto most = plan_.config.tokenizer.max_length;
  if (record.tokens > most)
    reject("document {}: {} tokens, and tokenizer.max_length is {}; cut the document or raise it",
           quote_text(record.source_id), record.tokens, most);
  if (plan_.manifest.token_strings && document.token_strings.size() != document.ids.size())
    reject("document {}: {} token strings for {} tokens; capture.capture_token_strings is set",
           quote_text(record.source_id), document.token_strings.size(), record.tokens);
  check_token_ids(plan_, example);
  return example;
}

std::optional<Example> DocumentReceiver::make_example_unless_stored(
    const WriterDocument& document) {
  auto example = make_example(document);
  if (passed_ >= stored_) return example;
  if (journal_ == nullptr) {
    mark_document_received(example);
    return std::nullopt;
  }
  if (next_record_ == segment_.size()) {
    const auto& entry = journal_->entries()[next_segment_++];
    const SegmentReader segment(journal_->segment_path(entry.segment),
                                journal_->manifest().groups.size());
    segment.verify_index();
    segment_ = segment.read_example_table();
    next_record_ = 0;
  }
  const auto& there = segment_[next_record_++];
  if (there.key != example.record.key || there.text != example.record.text)
    reject(
        "document {}: an earlier writer stored {} at this place{}; pass the same documents in "
        "the same order, or start again with overwrite",
        example.record.row, quote_text(there.source_id),
        there.key == example.record.key ? " with other tokens" : "");
  mark_document_received(example);
  return std::nullopt;
}

void DocumentReceiver::mark_document_received(const Example& example) {
  keys_.insert(example.record.key);
  ++passed_;
}

void DocumentReceiver::check_received_all_stored_documents() const {
  if (passed_ < stored_)
    reject("{} documents were passed and {} are stored; pass all documents again", passed_,
           stored_);
}

struct CaptureWriter::State {
  State(const CapturePlan& made, const CaptureOptions& options)
      : plan(made),
        part(plan.run_plan(), make_capture_shard_options(plan.run_plan(), options, [] {})),
        tracker(plan.run_plan(), part.is_open() ? &part.journal() : nullptr, options.shard) {}

  CapturePlan plan;
  Clock::time_point start = Clock::now();
  CaptureShardRun part;
  DocumentReceiver tracker;
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
  return is_open() ? state_->tracker.previously_stored_document_count() : 0;
}

std::int64_t CaptureWriter::documents() const {
  return state_->tracker.documents_received();
}

bool CaptureWriter::wants(const WriterDocument& document) {
  return translate_exceptions(
      [&] { return state_->tracker.make_example_unless_stored(document).has_value(); });
}

void CaptureWriter::add(const WriterDocument& document, const RunPass& run) {
  translate_exceptions([&] {
    const auto example = state_->tracker.make_example_unless_stored(document);
    if (!example) return;
    const auto& plan = state_->plan.run_plan();
    const auto prepared = prepare_batch(plan.manifest, {*example});
    // Buffer the rows in memory, so that an engine failure leaves no partial document.
    state_->part.writer().append_batch(prepared, capture_to_memory(plan, prepared, run));
    state_->tracker.mark_document_received(*example);
  });
}

void CaptureWriter::flush() {
  if (is_open()) translate_exceptions([&] { state_->part.writer().flush(); });
}

CaptureResult CaptureWriter::finish() {
  return translate_exceptions([&] {
    auto& part = state_->part;
    double forward_seconds = 0.0;
    if (part.is_open()) {
      state_->tracker.check_received_all_stored_documents();
      forward_seconds = part.writer().forward_seconds();
      part.close_part(true);
    }
    auto result = part.finish();
    result.forward_seconds = forward_seconds;
    result.seconds = seconds_since(state_->start);
    return result;
  });
}

}  // namespace qkscope
