#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "base/io/folder.h"
#include "capture/format/layout.h"
#include "capture/format/segment.h"
#include "capture/stats_run/stats_run.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSegmentExamples = 64;
constexpr auto kSegmentTime = std::chrono::seconds(60);
constexpr std::size_t kKeptStates = 2;

// Returns the path of a segment with another suffix, such as 00000007.state for 00000007.seg.
std::string segment_path_with_suffix(const Journal& journal, const std::string& segment,
                                     const char* suffix) {
  return journal.segment_path(fs::path(segment).stem().string() + suffix);
}

// Iterates over the documents of one part.
class DocumentCursor {
 public:
  explicit DocumentCursor(const Journal& journal) : journal_(&journal) { open_next(); }

  bool done() const { return !file_; }
  std::int64_t row() const { return file_->next_row(); }
  DocumentAttention take() {
    auto document = file_->read_next();
    if (file_->at_end()) open_next();
    return document;
  }

 private:
  void open_next() {
    file_.reset();
    const auto& entries = journal_->entries();
    while (!file_ && next_ < entries.size()) {
      const auto path =
          segment_path_with_suffix(*journal_, entries[next_++].segment, layout::kDocumentsSuffix);
      if (path_exists(path)) file_.emplace(path);
      if (file_ && file_->at_end()) file_.reset();
    }
  }

  const Journal* journal_;
  std::size_t next_ = 0;
  std::optional<DocumentFileReader> file_;
};

class PartDocumentReader : public DocumentSource {
 public:
  explicit PartDocumentReader(const std::vector<Journal>& parts) {
    for (const auto& part : parts) add(DocumentCursor(part));
  }

  bool next(DocumentAttention& document) override {
    if (order_.empty()) return false;
    auto first = std::move(order_.extract(order_.begin()).mapped());
    document = first.take();
    add(std::move(first));
    return true;
  }

 private:
  void add(DocumentCursor cursor) {
    if (cursor.done()) return;
    const auto row = cursor.row();
    order_.emplace(row, std::move(cursor));
  }

  std::multimap<std::int64_t, DocumentCursor> order_;  // by dataset row of the next document
};

}  // namespace

StatsPartWriter::StatsPartWriter(Journal& journal, StatsRunState fresh)
    : journal_(journal),
      state_(has_no_segments() ? std::move(fresh) : load_last_stats_state(journal)) {
  done_.examples = journal.examples();
  done_.tokens = journal.tokens();
}

void StatsPartWriter::add_batch(const PreparedBatch& prepared,
                                std::vector<DocumentRecord> documents) {
  for (const auto& example : prepared.examples) examples_.push_back(example.record);
  std::move(documents.begin(), documents.end(), std::back_inserter(documents_));
  done_.examples += std::ssize(prepared.examples);
  done_.tokens += prepared.tokens();
  if (examples_.size() >= kSegmentExamples || Clock::now() - saved_ >= kSegmentTime) flush();
}

void StatsPartWriter::flush() {
  if (examples_.empty()) return;
  JournalEntry entry;
  entry.segment = segment_name(journal_.entries().size());
  save_stats_state(segment_path_with_suffix(journal_, entry.segment, layout::kStateSuffix), state_);
  if (!documents_.empty())
    save_documents(segment_path_with_suffix(journal_, entry.segment, layout::kDocumentsSuffix),
                   documents_);
  SegmentWriter segment(journal_.segment_path(entry.segment), journal_.manifest().groups.size());
  for (const auto& example : examples_) {
    segment.add_example(example);
    entry.tokens += example.tokens;
  }
  entry.examples = std::ssize(examples_);
  entry.checksum = segment.commit();
  journal_.append_entry(entry);
  const auto& entries = journal_.entries();
  if (entries.size() > kKeptStates)
    fs::remove(segment_path_with_suffix(journal_, entries[entries.size() - kKeptStates - 1].segment,
                                        layout::kStateSuffix));
  examples_.clear();
  documents_.clear();
  saved_ = Clock::now();
}

StatsRunState load_last_stats_state(const Journal& journal) {
  return load_stats_state(
      segment_path_with_suffix(journal, journal.entries().back().segment, layout::kStateSuffix));
}

std::unique_ptr<DocumentSource> open_part_documents(const std::vector<Journal>& parts) {
  return std::make_unique<PartDocumentReader>(parts);
}

}  // namespace qkscope
