#include "capture/run/document_list.h"

#include <limits>
#include <span>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/checksum.h"
#include "capture/format/segment.h"
#include "capture/run/batch_reader.h"
#include "input/texts/dataset_files.h"

namespace qkscope {
namespace {

std::uint64_t checksum_of_ids(std::span<const std::int32_t> ids) {
  return checksum_of({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
}

}  // namespace

DocumentList::DocumentList(const RunPlan& plan, const Journal* journal, const Shard& shard)
    : plan_(plan),
      journal_(journal),
      shard_(shard),
      stored_(journal == nullptr ? std::numeric_limits<std::int64_t>::max() : journal->examples()) {
}

Example DocumentList::next_example(const WriterDocument& document) const {
  Example example;
  auto& record = example.record;
  record.row = passed_ * shard_.count + shard_.index;
  const auto id = document.number        ? ExampleId::from(*document.number)
                  : !document.id.empty() ? ExampleId::from_text(document.id)
                                         : ExampleId::from(record.row);
  record.key = example_key(id);
  record.source_id = id.text;
  record.tokens = static_cast<std::int32_t>(document.ids.size());
  record.text = checksum_of_ids(document.ids);
  example.ids = document.ids;
  example.token_strings = document.token_strings;
  if (keys_.contains(record.key))
    bad_input("document {}: the id {} was passed before; give each document an id of its own",
              record.row, quote_text(record.source_id));
  const auto most = plan_.config.tokenizer.max_length;
  if (record.tokens > most)
    bad_input(
        "document {}: {} tokens, and tokenizer.max_length is {}; cut the document or raise it",
        quote_text(record.source_id), record.tokens, most);
  if (plan_.manifest.token_strings && document.token_strings.size() != document.ids.size())
    bad_input("document {}: {} token strings for {} tokens; capture.capture_token_strings is set",
              quote_text(record.source_id), document.token_strings.size(), record.tokens);
  check_token_ids(plan_, example);
  return example;
}

std::optional<Example> DocumentList::next_to_store(const WriterDocument& document) {
  auto example = next_example(document);
  if (passed_ >= stored_) return example;
  if (journal_ != nullptr) check_matches_stored(example);
  count_document(example);
  return std::nullopt;
}

void DocumentList::check_matches_stored(const Example& example) {
  if (next_record_ == segment_.size()) {
    const auto& entry = journal_->entries()[next_segment_++];
    const SegmentReader segment(journal_->segment_path(entry.segment),
                                journal_->manifest().groups.size());
    segment.check_index();
    segment_ = segment.read_example_table();
    next_record_ = 0;
  }
  const auto& there = segment_[next_record_++];
  if (there.key != example.record.key || there.text != example.record.text)
    bad_input(
        "document {}: an earlier writer stored {} at this place{}; pass the same documents in "
        "the same order, or start again with overwrite",
        example.record.row, quote_text(there.source_id),
        there.key == example.record.key ? " with other tokens" : "");
}

void DocumentList::count_document(const Example& example) {
  keys_.insert(example.record.key);
  ++passed_;
}

void DocumentList::check_all_passed() const {
  if (passed_ < stored_)
    bad_input("{} documents were passed and {} are stored; pass all documents again", passed_,
              stored_);
}

}  // namespace qkscope
