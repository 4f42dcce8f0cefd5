#include "capture/assemble.h"

#include <filesystem>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include "captures/buckets.h"
#include "captures/dataset_card.h"
#include "captures/examples.h"
#include "captures/head_writer.h"
#include "captures/part_check.h"
#include "captures/segment.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "io/folder.h"
#include "io/open_folder.h"
#include "io/output_file.h"
#include "qkscope/log.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// The blocks of one group, over the segments of one part; one segment is open at a time.
class BlockCursor {
 public:
  BlockCursor(const Journal& journal, std::size_t group);

  bool done() const { return !segment_; }
  std::int64_t example_row() const { return index_[at_].example_row; }
  // The rows of the group's `head`-th head; then the next example.
  void take(std::size_t head, HeadBlock& block);

 private:
  void open_next();

  const Journal* journal_;
  std::size_t group_;
  std::size_t next_segment_ = 0;
  std::optional<SegmentReader> segment_;
  std::vector<BlockEntry> index_;
  std::size_t at_ = 0;
};

BlockCursor::BlockCursor(const Journal& journal, std::size_t group)
    : journal_(&journal), group_(group) {
  open_next();
}

void BlockCursor::open_next() {
  segment_.reset();
  at_ = 0;
  const auto& entries = journal_->entries();
  while (!segment_ && next_segment_ < entries.size()) {
    segment_.emplace(journal_->segment_path(entries[next_segment_++].segment),
                     journal_->manifest().groups.size());
    index_ = segment_->index(group_);
    if (index_.empty()) segment_.reset();
  }
}

void BlockCursor::take(std::size_t head, HeadBlock& block) {
  segment_->read(index_[at_], head, journal_->manifest().head_dim, block);
  if (++at_ == index_.size()) open_next();
}

// The example tables of one part.
class ExampleCursor {
 public:
  explicit ExampleCursor(const Journal& journal);

  bool done() const { return at_ == table_.size(); }
  std::int64_t example_row() const { return table_[at_].row; }
  ExampleRecord take();

 private:
  void open_next();

  const Journal* journal_;
  std::size_t next_segment_ = 0;
  std::vector<ExampleRecord> table_;
  std::size_t at_ = 0;
};

ExampleCursor::ExampleCursor(const Journal& journal) : journal_(&journal) {
  open_next();
}

void ExampleCursor::open_next() {
  table_.clear();
  at_ = 0;
  const auto& entries = journal_->entries();
  while (table_.empty() && next_segment_ < entries.size())
    table_ = SegmentReader(journal_->segment_path(entries[next_segment_++].segment),
                           journal_->manifest().groups.size())
                 .example_table();
}

ExampleRecord ExampleCursor::take() {
  auto record = std::move(table_[at_]);
  if (++at_ == table_.size()) open_next();
  return record;
}

// The cursor whose example comes first in the dataset; null when all are done.
template <typename Cursor>
Cursor* first_in_dataset(std::vector<Cursor>& cursors) {
  Cursor* first = nullptr;
  for (auto& cursor : cursors)
    if (!cursor.done() && (first == nullptr || cursor.example_row() < first->example_row()))
      first = &cursor;
  return first;
}

struct HeadJob {
  std::size_t group;
  std::size_t head;  // in the group
};

std::vector<HeadJob> head_jobs(const Manifest& manifest) {
  std::vector<HeadJob> jobs;
  for (std::size_t group = 0; group < manifest.groups.size(); ++group)
    for (std::size_t head = 0; head < manifest.groups[group].heads.size(); ++head)
      jobs.push_back({group, head});
  return jobs;
}

// One head's file, from the blocks of all parts. Returns its rows by bucket.
BucketCounts write_head(const std::string& folder, const std::vector<Journal>& parts, HeadJob job) {
  const auto& manifest = parts.front().manifest();
  const auto& group = manifest.groups[job.group];
  const auto head = group.heads[job.head];
  const auto path = head_file_path(folder, manifest.head_id(group, head));
  make_folders(fs::path(path).parent_path().string());
  HeadWriter writer(path, {.head_dim = static_cast<int>(manifest.head_dim),
                           .token_strings = manifest.token_strings,
                           .example_keys = true,
                           .row_group_size = manifest.row_group_size,
                           .metadata = manifest.file_metadata(group, head)});
  const Buckets bucket(manifest.sampler);
  std::vector<BlockCursor> cursors;
  cursors.reserve(parts.size());
  for (const auto& part : parts) cursors.emplace_back(part, job.group);
  BucketCounts counts;
  HeadBlock block;
  while (auto* cursor = first_in_dataset(cursors)) {
    cursor->take(job.head, block);
    if (block.positions.empty()) continue;
    std::vector<std::int32_t> buckets;
    for (const auto position : block.positions) {
      buckets.push_back(bucket.of(position));
      ++counts[buckets.back()];
    }
    const std::vector<std::int32_t> ids(buckets.size(), example_id(block.example_key));
    const std::vector<std::int64_t> keys(buckets.size(), block.example_key);
    writer.append({.bucket = buckets,
                   .example_id = ids,
                   .position = block.positions,
                   .vectors = block.vectors,
                   .sliding_window = group.window,
                   .token_str = block.token_strings,
                   .example_key = keys});
  }
  writer.finish();
  return counts;
}

std::int64_t write_examples(const std::string& folder, const std::vector<Journal>& parts) {
  ExamplesWriter writer(folder + "/" + layout::kExamplesFile,
                        parts.front().manifest().row_group_size);
  std::vector<ExampleCursor> cursors;
  cursors.reserve(parts.size());
  for (const auto& part : parts) cursors.emplace_back(part);
  std::int64_t count = 0;
  while (auto* cursor = first_in_dataset(cursors)) {
    writer.append(cursor->take());
    ++count;
  }
  writer.finish();
  return count;
}

BucketCounts write_heads(const std::string& folder, const std::vector<Journal>& parts, bool quiet) {
  const auto jobs = head_jobs(parts.front().manifest());
  Progress progress({.what = "files",
                     .unit = "heads",
                     .total = static_cast<std::int64_t>(jobs.size()),
                     .quiet = quiet});
  BucketCounts counts;
  std::int64_t written = 0;
  std::mutex mutex;
  parallel_for(static_cast<std::int64_t>(jobs.size()), [&](std::int64_t i) {
    const auto of_head = write_head(folder, parts, jobs[static_cast<std::size_t>(i)]);
    const std::lock_guard lock(mutex);
    for (const auto& [bucket, rows] : of_head) counts[bucket] += rows;
    progress.update(++written);
  });
  return counts;
}

}  // namespace

void assemble(const DataRoot& root, const std::vector<Journal>& parts, bool quiet) {
  const auto folder = root.final_folder();
  for (const auto& part : parts) check_part(part);
  OpenFolder(root.parts()).remove_tree(layout::kFinalFolder);
  make_folders(folder);
  const auto& manifest = parts.front().manifest();
  CaptureSummary summary;
  for (const auto& part : parts) summary.non_finite += part.non_finite();
  summary.buckets = write_heads(folder, parts, quiet);
  summary.examples = write_examples(folder, parts);
  write_file(folder + "/" + layout::kCardFile, dataset_card(manifest, summary));
  write_file(folder + "/" + layout::kStateFile, saver_state(manifest, summary).dump(2) + "\n");
  root.publish_final();
  root.remove_parts();
}

}  // namespace qkscope
