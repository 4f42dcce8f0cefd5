// Tracks the documents that a caller passes to a CaptureWriter or StatsWriter.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "capture/format/journal.h"
#include "capture/run/capture_plan.h"
#include "capture/writer/selection.h"
#include "qkscope/experimental/engine.h"

namespace qkscope {

// Numbers the documents, checks their ids, and compares them with the documents that earlier
// writers stored in the part.
class DocumentList {
 public:
  // Plan and journal must outlive this object. `journal` is null if the run is already finished.
  DocumentList(const RunPlan& plan, const Journal* journal, const Shard& shard);

  std::int64_t documents_stored_before() const { return stored_; }  // by earlier writers
  std::int64_t documents_passed() const { return passed_; }

  // Returns the next document as an example. If an earlier writer stored the document, counts it
  // and returns nullopt. Throws a bad-input error for invalid ids or token ids, and if a different
  // document is stored at this index.
  std::optional<Example> next_to_store(const WriterDocument& document);
  void count_document(const Example& example);
  // Throws a bad-input error if the caller passed fewer documents than earlier writers stored.
  void check_all_passed() const;

 private:
  Example next_example(const WriterDocument& document) const;
  void check_matches_stored(const Example& example);

  const RunPlan& plan_;
  const Journal* journal_;
  Shard shard_;
  std::int64_t stored_ = 0;
  std::int64_t passed_ = 0;
  std::unordered_set<std::int64_t> keys_;  // of the passed documents
  std::size_t next_segment_ = 0;
  std::vector<ExampleRecord> segment_;  // stored examples of one segment
  std::size_t next_record_ = 0;
};

}  // namespace qkscope
