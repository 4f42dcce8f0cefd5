#include "capture/assemble.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>

#include <fmt/format.h>

#include "captures/buckets.h"
#include "captures/dataset_card.h"
#include "captures/examples.h"
#include "captures/head_writer.h"
#include "captures/part_check.h"
#include "captures/parts_in_order.h"
#include "captures/segment_files.h"
#include "core/thread_pool.h"
#include "io/folder.h"
#include "io/open_files.h"
#include "io/open_folder.h"
#include "io/output_file.h"
#include "qkscope/log.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// Heads of a group whose files one thread writes together, at most: their rows are read at once.
// Every head has up to one row group in memory.
constexpr std::size_t kHeadsTogether = 4;
constexpr std::size_t kSegmentsOpen = 1024;  // at most
constexpr std::size_t kOtherFiles = 16;  // folders, the log, what a host program opens meanwhile

// How the files that this process may open are shared out.
struct OpenFiles {
  std::size_t threads = 1;   // that write at a time, kHeadsTogether files each
  std::size_t segments = 1;  // kept open for all of them

  OpenFiles() {
    const auto left = open_files_left();
    const auto room = left > kOtherFiles ? left - kOtherFiles : 1;
    // A thread holds a segment or two that others have pushed out.
    constexpr std::size_t kPerThread = kHeadsTogether + 2;
    threads =
        std::clamp<std::size_t>(room / 2 / kPerThread, 1, static_cast<std::size_t>(thread_count()));
    if (room > threads * kPerThread)
      segments = std::min(room - threads * kPerThread, kSegmentsOpen);
  }
};

// Heads that are written together.
struct HeadsJob {
  std::size_t group;
  HeadRange heads;
};

std::size_t count_heads(const Manifest& manifest) {
  std::size_t count = 0;
  for (const auto& group : manifest.groups) count += group.heads.size();
  return count;
}

std::vector<HeadsJob> head_jobs(const Manifest& manifest, std::size_t together) {
  std::vector<HeadsJob> jobs;
  for (std::size_t group = 0; group < manifest.groups.size(); ++group) {
    const auto heads = manifest.groups[group].heads.size();
    for (std::size_t first = 0; first < heads; first += together)
      jobs.push_back({group, {first, std::min(together, heads - first)}});
  }
  return jobs;
}

// The files of some heads of a group on their way.
class HeadFiles {
 public:
  HeadFiles(const std::string& folder, const Manifest& manifest, const HeadsJob& job)
      : manifest_(manifest), job_(job), bucket_(manifest.sampler) {
    for (std::size_t i = 0; i < job.heads.count; ++i)
      writers_.push_back(open(folder, group().heads[job.heads.first + i]));
  }

  // The heads' rows of the example that `examples` is at.
  void append(const PartsInOrder& examples) {
    if (segment_ != examples.segment()) {
      segment_ = examples.segment();
      index_ = segment_->index(job_.group);
    }
    segment_->read(index_[examples.number()], job_.heads, manifest_.head_dim, block_);
    if (block_.positions.empty()) return;
    std::vector<std::int32_t> buckets;
    for (const auto position : block_.positions) {
      buckets.push_back(bucket_.of(position));
      counts_[buckets.back()] += std::ssize(writers_);
    }
    const std::vector<std::int32_t> ids(buckets.size(), example_id(block_.example_key));
    const std::vector<std::int64_t> keys(buckets.size(), block_.example_key);
    const auto of_head = block_.vectors.size() / writers_.size();
    for (std::size_t i = 0; i < writers_.size(); ++i)
      writers_[i]->append({.bucket = buckets,
                           .example_id = ids,
                           .position = block_.positions,
                           .vectors = std::span(block_.vectors).subspan(i * of_head, of_head),
                           .sliding_window = group().window,
                           .token_str = block_.token_strings,
                           .example_key = keys});
  }
  void finish() {
    for (const auto& writer : writers_) writer->finish();
  }
  const BucketCounts& counts() const { return counts_; }  // over all of the heads

 private:
  const HeadGroup& group() const { return manifest_.groups[job_.group]; }
  std::unique_ptr<HeadWriter> open(const std::string& folder, std::int64_t head) const {
    const auto path = head_file_path(folder, manifest_.head_id(group(), head));
    make_folders(fs::path(path).parent_path().string());
    return std::make_unique<HeadWriter>(
        path, HeadWriterOptions{.head_dim = static_cast<int>(manifest_.head_dim),
                                .token_strings = manifest_.token_strings,
                                .example_keys = true,
                                .row_group_size = manifest_.row_group_size,
                                .metadata = manifest_.file_metadata(group(), head)});
  }

  const Manifest& manifest_;
  HeadsJob job_;
  Buckets bucket_;
  std::vector<std::unique_ptr<HeadWriter>> writers_;  // (heads)
  std::shared_ptr<const SegmentReader> segment_;
  std::vector<BlockEntry> index_;  // (examples) of the segment
  HeadBlock block_;                // of one example
  BucketCounts counts_;
};

// The files of some heads, from the blocks of all parts. Returns their rows by bucket.
BucketCounts write_together(const std::string& folder, SegmentFiles& segments,
                            const HeadsJob& job) {
  HeadFiles files(folder, segments.parts().front().manifest(), job);
  PartsInOrder examples(segments);
  while (examples.next()) files.append(examples);
  files.finish();
  return files.counts();
}

std::int64_t write_examples(const std::string& folder, SegmentFiles& segments) {
  ExamplesWriter writer(folder + "/" + layout::kExamplesFile,
                        segments.parts().front().manifest().row_group_size);
  std::int64_t count = 0;
  PartsInOrder examples(segments);
  for (; examples.next(); ++count) writer.append(examples.example());
  writer.finish();
  return count;
}

BucketCounts write_heads(const std::string& folder, SegmentFiles& segments, std::size_t threads,
                         bool quiet) {
  const auto& manifest = segments.parts().front().manifest();
  const auto heads = count_heads(manifest);
  Progress progress({.what = "files",
                     .unit = "heads",
                     .total = static_cast<std::int64_t>(heads),
                     .quiet = quiet});
  BucketCounts counts;
  std::int64_t written = 0;
  std::size_t taken = 0;
  std::mutex mutex;
  // Few enough that all threads end at about the same time; and what Parquet notes of each row
  // group until a file ends is in memory once for every head.
  const auto together = std::clamp<std::size_t>(heads / threads / 8, 1, kHeadsTogether);
  const auto jobs = head_jobs(manifest, together);
  const auto take = [&] {
    const std::lock_guard lock(mutex);
    return taken < jobs.size() ? &jobs[taken++] : nullptr;
  };
  parallel_for(static_cast<std::int64_t>(threads), [&](std::int64_t) {
    while (const auto* job = take()) {
      const auto of_heads = write_together(folder, segments, *job);
      const std::lock_guard lock(mutex);
      for (const auto& [bucket, rows] : of_heads) counts[bucket] += rows;
      progress.update(written += static_cast<std::int64_t>(job->heads.count));
    }
  });
  return counts;
}

}  // namespace

void assemble(const DataRoot& root, const std::vector<Journal>& parts, bool quiet) {
  const auto folder = root.final_folder();
  check_parts(parts);
  OpenFolder(root.parts()).remove_tree(layout::kFinalFolder);
  make_folders(folder);
  const auto& manifest = parts.front().manifest();
  CaptureSummary summary;
  for (const auto& part : parts) summary.non_finite += part.non_finite();
  {
    const OpenFiles open;
    SegmentFiles segments(parts, open.segments);
    summary.buckets = write_heads(folder, segments, open.threads, quiet);
    summary.examples = write_examples(folder, segments);
  }
  write_file(folder + "/" + layout::kCardFile, dataset_card(manifest, summary));
  write_file(folder + "/" + layout::kStateFile, saver_state(manifest, summary).dump(2) + "\n");
  root.publish_final();
  root.remove_parts();
}

}  // namespace qkscope
