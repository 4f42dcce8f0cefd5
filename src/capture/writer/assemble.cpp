#include "capture/writer/assemble.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <sys/resource.h>
#include <unistd.h>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/format/buckets.h"
#include "capture/format/head_writer.h"
#include "qkscope/experimental/log.h"

namespace qkscope {
namespace {

// Maximum number of heads that a thread writes at the same time; each keeps a row group in memory.
constexpr std::size_t kMaxHeadsPerJob = 4;
constexpr std::size_t kMaxOpenSegments = 1024;
constexpr std::size_t kReservedFiles = 16;  // reserve for folders, the log and a host program

// Memory limits of background assembly, which keeps the files of all heads open: Parquet holds the
// current row group and the metadata of all row groups in memory until a file is closed.
constexpr std::int64_t kBackgroundRowGroupBytes = std::int64_t{4} << 30;
constexpr std::int64_t kBackgroundMetadataBytes = std::int64_t{512} << 20;
constexpr std::int64_t kMetadataBytesPerRowGroup = 8 << 10;
constexpr std::int64_t kPageBytesPerHead = 3 << 20;  // bytes of uncompressed pages

std::size_t usable_file_descriptors() {
  const auto left = count_free_file_descriptors();
  return left > kReservedFiles ? left - kReservedFiles : 1;
}

// Divides the file descriptors of this process between writers and segments.
struct FileDescriptorBudget {
  std::size_t threads = 1;   // concurrent writers, with kMaxHeadsPerJob files each
  std::size_t segments = 1;  // segments kept open for all writers

  FileDescriptorBudget() {
    const auto room = usable_file_descriptors();
    // Besides head files, a thread may hold two open segments that the cache has already evicted.
    constexpr std::size_t kPerThread = kMaxHeadsPerJob + 2;
    threads =
        std::clamp<std::size_t>(room / 2 / kPerThread, 1, static_cast<std::size_t>(thread_count()));
    if (room > threads * kPerThread)
      segments = std::min(room - threads * kPerThread, kMaxOpenSegments);
  }
};

std::size_t count_heads(const Manifest& manifest) {
  std::size_t count = 0;
  for (const auto& group : manifest.groups) count += group.heads.size();
  return count;
}

// Returns the number of heads whose files background assembly may keep open.
std::size_t max_background_heads(const Manifest& manifest) {
  const auto memory = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  std::int64_t width = 0;
  for (const auto& group : manifest.groups) width = std::max(width, manifest.head_dim_of(group));
  const auto row = width * std::int64_t{sizeof(float)} + 64;
  const auto of_head = manifest.row_group_size * row + kPageBytesPerHead;
  return std::min(
      static_cast<std::size_t>(std::min(kBackgroundRowGroupBytes, memory / 8) / of_head),
      usable_file_descriptors() / 2);
}

}  // namespace

// Output files of adjacent heads, whose rows are contiguous in segments; written by one thread.
class CaptureAssembler::HeadFiles {
 public:
  // The manifest must outlive this object.
  HeadFiles(const Manifest& manifest, std::size_t group, HeadRange heads)
      : manifest_(&manifest), group_(group), heads_(heads), bucket_(manifest.sampler) {}

  std::size_t head_count() const { return heads_.count; }
  std::int64_t rows_per_head() const { return rows_; }           // rows appended per head
  const BucketCounts& bucket_counts() const { return counts_; }  // rows by bucket, over all heads

  // Appends the rows of all parts; the first call creates the files. A single growing part may be
  // passed repeatedly: each call appends only the segments that are new since the last call.
  // Buffers are local, because hundreds of HeadFiles may wait for more segments at the same time.
  void append_new_rows(const std::string& folder, SegmentCache& segments) {
    if (writers_.empty()) create_files(folder);
    std::shared_ptr<const SegmentReader> segment;
    std::vector<BlockIndexEntry> index;  // (examples of the segment)
    CapturedRows block;
    OrderedExampleReader examples(segments, segments_);
    while (examples.next()) {
      if (segment != examples.segment()) {
        segment = examples.segment();
        index = segment->read_block_index(group_);
      }
      segment->read_block(index[examples.index_in_segment()], heads_,
                          manifest_->head_dim_of(head_group()), block);
      if (!block.positions.empty()) append_block(block);
    }
    segments_ = segments.journals().front().entries().size();
  }

  void finish() {
    for (const auto& writer : writers_) writer->finish();
  }
  // Deletes the unfinished files, so that the next append_new_rows() starts at the first segment.
  void discard() { *this = HeadFiles(*manifest_, group_, heads_); }

 private:
  const HeadGroup& head_group() const { return manifest_->groups[group_]; }
  void create_files(const std::string& folder) {
    for (std::size_t i = 0; i < heads_.count; ++i) {
      const auto head = head_group().heads[heads_.first + i];
      const auto path = head_file_path(folder, manifest_->head_id(head_group(), head));
      make_folders(parent_folder(path));
      writers_.push_back(std::make_unique<HeadWriter>(
          path,
          HeadWriterOptions{.head_dim = static_cast<int>(manifest_->head_dim_of(head_group())),
                            .token_strings = manifest_->token_strings,
                            .example_keys = true,
                            .row_group_size = manifest_->row_group_size,
                            .metadata = manifest_->head_file_metadata(head_group(), head)}));
    }
  }

  void append_block(const CapturedRows& block) {
    std::vector<std::int32_t> buckets;
    for (const auto position : block.positions) {
      buckets.push_back(bucket_.bucket_of(position));
      counts_[buckets.back()] += std::ssize(writers_);
    }
    const std::vector<std::int32_t> ids(buckets.size(), example_id_from_key(block.example_key));
    const std::vector<std::int64_t> keys(buckets.size(), block.example_key);
    const auto of_head = block.vectors.size() / writers_.size();
    for (std::size_t i = 0; i < writers_.size(); ++i)
      writers_[i]->append({.bucket = buckets,
                           .example_id = ids,
                           .position = block.positions,
                           .vectors = std::span(block.vectors).subspan(i * of_head, of_head),
                           .sliding_window = head_group().window,
                           .token_str = block.token_strings,
                           .example_key = keys});
    rows_ += std::ssize(buckets);
  }

  const Manifest* manifest_;
  std::size_t group_;  // index in the manifest
  HeadRange heads_;
  PositionBuckets bucket_;
  std::vector<std::unique_ptr<HeadWriter>> writers_;  // (heads), empty before create_files()
  std::size_t segments_ = 0;                          // segments appended so far
  std::int64_t rows_ = 0;
  BucketCounts counts_;
};

CaptureAssembler::CaptureAssembler(const DataRoot& root, std::vector<Journal> parts)
    : root_(root), folder_(root.final_folder()), parts_(std::move(parts)) {
  for (const auto& part : parts_) verified_.push_back({&part});
  const auto& manifest = parts_.front().manifest();
  // Small jobs balance the load of the threads; large jobs read each segment fewer times.
  const auto most = std::clamp<std::size_t>(
      count_heads(manifest) / FileDescriptorBudget().threads / 8, 1, kMaxHeadsPerJob);
  for (std::size_t group = 0; group < manifest.groups.size(); ++group) {
    const auto heads = manifest.groups[group].heads.size();
    for (std::size_t first = 0; first < heads; first += most)
      jobs_.emplace_back(manifest, group, HeadRange{first, std::min(most, heads - first)});
  }
}

CaptureAssembler::~CaptureAssembler() {
  stop_background_assembly();
}

void CaptureAssembler::start_background_assembly() {
  QKSCOPE_ASSERT(parts_.size() == 1 && !ahead_.valid());
  const auto& manifest = parts_.front().manifest();
  const auto most = max_background_heads(manifest);
  std::size_t heads = 0;
  for (; background_jobs_ < jobs_.size(); ++background_jobs_) {
    heads += jobs_[background_jobs_].head_count();
    if (heads > most) break;
  }
  if (background_jobs_ == 0) return;
  background_row_limit_ =
      manifest.row_group_size *
      (kBackgroundMetadataBytes / kMetadataBytesPerRowGroup / static_cast<std::int64_t>(heads));
  const auto& entries = parts_.front().entries();
  waiting_.assign(entries.begin(), entries.end());
  parts_.front() = parts_.front().copy_without_entries();
  try {
    ahead_ = std::async(std::launch::async, [this] { run_background_assembly(); });
  } catch (const std::system_error& error) {
    log::debug("files are not made ahead: {}", error.what());
  }
}

void CaptureAssembler::enqueue_segment(const JournalEntry& entry) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(entry);
  }
  more_.notify_one();
}

// Runs at low priority (inherited by new threads), so that threads feeding the device run first.
void CaptureAssembler::run_background_assembly() {
  (void)::setpriority(PRIO_PROCESS, 0, 19);  // on Linux affects only the calling thread
  try {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        more_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
        if (ending_) return;
        parts_.front().add_entry_without_writing(waiting_.front());
        waiting_.pop_front();
      }
      verify_new_segments(verified_);
      make_final_folder_once();
      // Skips files with too many row groups, and all remaining files once background work is
      // stopped; finish() appends the skipped rows.
      SegmentCache segments(parts_, 1);
      std::atomic<std::size_t> next = 0;
      const auto append = [&] {
        for (auto i = next++; i < background_jobs_ && !ending_; i = next++)
          if (jobs_[i].rows_per_head() < background_row_limit_)
            jobs_[i].append_new_rows(folder_, segments);
      };
      std::vector<std::future<void>> others;
      for (int i = 1; i < thread_count() / 2; ++i) others.push_back(run_in_background(append));
      append();
      for (auto& other : others) other.get();
    }
  } catch (const std::exception& error) {
    // After an error, finish() redoes all the work and reports the error if it persists.
    log::debug("files are not made ahead any more: {}", error.what());
    for (auto& job : jobs_) job.discard();
  }
}

void CaptureAssembler::stop_background_assembly() {
  if (!ahead_.valid()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  more_.notify_one();
  ahead_.wait();
  ahead_ = {};
}

void CaptureAssembler::make_final_folder_once() {
  if (folder_made_) return;
  root_.make_final_folder();
  folder_made_ = true;
}

void CaptureAssembler::finish(bool quiet) {
  const auto start = Clock::now();
  const auto log_step = [&](const char* what) {
    log::debug("assembly, {:.3f} s: {}", seconds_since(start), what);
  };
  stop_background_assembly();
  for (const auto& entry : waiting_) parts_.front().add_entry_without_writing(entry);
  log_step("the work ahead has ended");
  verify_new_segments(verified_);
  log_step("all segments are checked");
  make_final_folder_once();
  const auto& manifest = parts_.front().manifest();
  CaptureSummary summary;
  for (const auto& part : parts_) summary.non_finite += part.non_finite_row_count();
  {
    const FileDescriptorBudget open;
    SegmentCache segments(parts_, open.segments);
    summary.buckets = write_heads(segments, open.threads, quiet);
    ExamplesWriter writer(folder_ + "/" + layout::kExamplesFile, manifest.row_group_size);
    OrderedExampleReader examples(segments);
    for (; examples.next(); ++summary.examples) writer.append(examples.example());
    writer.finish();
  }
  summary.files = make_file_list(folder_);
  log_step("all files are listed");
  write_file(folder_ + "/" + layout::kCardFile, dataset_card(manifest, summary));
  write_json_file(folder_ + "/" + layout::kStateFile, capture_state_json(manifest, summary));
}

// Writes all head files, the last jobs first: background assembly skips them, so they take longest.
BucketCounts CaptureAssembler::write_heads(SegmentCache& segments, std::size_t threads,
                                           bool quiet) {
  Progress progress({.what = "files",
                     .unit = "heads",
                     .total = static_cast<std::int64_t>(count_heads(parts_.front().manifest())),
                     .quiet = quiet});
  BucketCounts counts;
  std::int64_t written = 0;
  std::mutex mutex;
  const auto take = [&]() -> std::optional<HeadFiles> {
    const std::lock_guard lock(mutex);
    if (jobs_.empty()) return {};
    auto job = std::move(jobs_.back());
    jobs_.pop_back();
    return job;
  };
  parallel_for(static_cast<std::int64_t>(threads), [&](std::int64_t) {
    while (auto job = take()) {
      job->append_new_rows(folder_, segments);
      job->finish();
      const std::lock_guard lock(mutex);
      for (const auto& [bucket, rows] : job->bucket_counts()) counts[bucket] += rows;
      progress.update(written += static_cast<std::int64_t>(job->head_count()));
    }
  });
  return counts;
}

CaptureShardRun::CaptureShardRun(const PartWriterPlan& plan, ShardRunOptions run)
    : quiet_(run.quiet), session_(std::move(run)) {
  if (!session_.is_open()) return;
  auto& journal = session_.journal();
  assembler_ = std::make_unique<CaptureAssembler>(session_.root(), std::vector{journal});
  writer_ = std::make_unique<CapturePartWriter>(
      plan, journal, [this](const JournalEntry& entry) { assembler_->enqueue_segment(entry); });
}

CaptureShardRun::~CaptureShardRun() {
  writer_.reset();     // waits for the segment that is being closed
  assembler_.reset();  // deletes unfinished files while the data root is locked
}

void CaptureShardRun::close_part(bool is_complete) {
  writer_->flush();
  if (is_complete) session_.journal().mark_complete();
}

ShardRunResult CaptureShardRun::finish() {
  writer_.reset();
  if (session_.is_open()) assembler_.reset();  // incomplete part: drop its files
  return session_.finish([this](const DataRoot& root, std::vector<Journal> parts) {
    const auto assembler = assembler_ ? std::move(assembler_)
                                      : std::make_unique<CaptureAssembler>(root, std::move(parts));
    assembler->finish(quiet_);
  });
}

}  // namespace qkscope
