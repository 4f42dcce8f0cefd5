#include "capture/run/assemble.h"

#include <algorithm>
#include <optional>
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
#include "capture/format/dataset_card.h"
#include "capture/format/examples.h"
#include "capture/format/examples_in_order.h"
#include "qkscope/experimental/log.h"

namespace qkscope {
namespace {

// Upper limit of heads whose files one thread writes at the same time. Every head keeps up to one
// row group in memory.
constexpr std::size_t kHeadsPerJob = 4;
constexpr std::size_t kMaxOpenSegments = 1024;
constexpr std::size_t kOtherFiles = 16;  // reserve for folders, the log and a host program

// Work ahead keeps the files of all heads open. These limits bound the memory for row groups and
// for the column metadata that Parquet keeps until a file ends.
constexpr std::int64_t kRowGroupBytesAhead = std::int64_t{4} << 30;
constexpr std::int64_t kMetadataBytesAhead = std::int64_t{512} << 20;
constexpr std::int64_t kMetadataBytesPerRowGroup = 8 << 10;
constexpr std::int64_t kPageBytesPerHead = 3 << 20;  // uncompressed pages

std::size_t open_files_room() {
  const auto left = open_files_left();
  return left > kOtherFiles ? left - kOtherFiles : 1;
}

// Divides the file descriptors of this process between writers and segments.
struct OpenFiles {
  std::size_t threads = 1;   // concurrent writers, with kHeadsPerJob files each
  std::size_t segments = 1;  // kept open for all writers

  OpenFiles() {
    const auto room = open_files_room();
    // A thread may hold two segments that other threads have evicted from the cache.
    constexpr std::size_t kPerThread = kHeadsPerJob + 2;
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

// Small jobs balance the threads; large ones read each segment less often.
std::size_t heads_per_job(const Manifest& manifest) {
  return std::clamp<std::size_t>(count_heads(manifest) / OpenFiles().threads / 8, 1, kHeadsPerJob);
}

// Number of heads whose files may be open during work ahead.
std::size_t heads_ahead(const Manifest& manifest) {
  const auto memory = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const auto row = manifest.head_dim * std::int64_t{sizeof(float)} + 64;
  const auto of_head = manifest.row_group_size * row + kPageBytesPerHead;
  return std::min(static_cast<std::size_t>(std::min(kRowGroupBytesAhead, memory / 8) / of_head),
                  open_files_room() / 2);
}

}  // namespace

Assembly::Assembly(const DataRoot& root, std::vector<Journal> parts)
    : root_(root),
      folder_(root.final_folder()),
      parts_(std::move(parts)),
      checks_(parts_.begin(), parts_.end()) {
  const auto& manifest = parts_.front().manifest();
  for (const auto& heads : split_heads(manifest, heads_per_job(manifest)))
    jobs_.push_back({heads, nullptr});
}

Assembly::~Assembly() {
  end_ahead();
}

void Assembly::begin_ahead() {
  QKSCOPE_ASSERT(parts_.size() == 1 && !ahead_.valid());
  const auto& manifest = parts_.front().manifest();
  const auto most = heads_ahead(manifest);
  std::size_t heads = 0;
  for (; jobs_ahead_ < jobs_.size(); ++jobs_ahead_) {
    heads += jobs_[jobs_ahead_].heads.heads.count;
    if (heads > most) break;
  }
  if (jobs_ahead_ == 0) return;
  rows_ahead_ = manifest.row_group_size * (kMetadataBytesAhead / kMetadataBytesPerRowGroup /
                                           static_cast<std::int64_t>(heads));
  const auto& entries = parts_.front().entries();
  learned_.assign(entries.begin(), entries.end());
  parts_.front() = parts_.front().without_segments();
  ahead_ = std::async(std::launch::async, [this] { work_ahead(); });
}

void Assembly::learn(const JournalEntry& entry) {
  {
    const std::lock_guard lock(mutex_);
    learned_.push_back(entry);
  }
  more_.notify_one();
}

// Child threads inherit the low priority, so that threads feeding the device run first.
void Assembly::work_ahead() {
  (void)::setpriority(PRIO_PROCESS, 0, 19);  // on Linux affects only the calling thread
  try {
    while (take_segment()) {
      check_new_segments(checks_);
      make_folder();
      append_ahead();
    }
  } catch (const std::exception& error) {
    // finish() then does all the work, and reports the error if it persists.
    log::debug("files are not made ahead any more: {}", error.what());
    for (auto& job : jobs_) job.files.reset();
  }
}

// Blocks until a segment is available. Returns false when the work ahead ends.
bool Assembly::take_segment() {
  std::unique_lock lock(mutex_);
  more_.wait(lock, [this] { return ending_ || !learned_.empty(); });
  if (ending_) return false;
  parts_.front().learn(learned_.front());
  learned_.pop_front();
  return true;
}

// Appends the rows of the newest segment to the head files that are assembled while the run goes
// on. finish() appends the rows of head files that this function skips: those left when the run
// ends, and those that already have too many row groups.
void Assembly::append_ahead() {
  SegmentFiles segments(parts_, 1);
  std::atomic<std::size_t> next = 0;
  const auto append = [&] {
    for (auto i = next++; i < jobs_ahead_ && !ending_; i = next++) {
      auto& files = files_of(jobs_[i]);
      if (files.rows() < rows_ahead_) files.append_new(segments);
    }
  };
  std::vector<std::future<void>> others;
  for (int i = 1; i < thread_count() / 2; ++i)
    others.push_back(std::async(std::launch::async, append));
  append();
  for (auto& other : others) other.get();
}

void Assembly::end_ahead() {
  if (!ahead_.valid()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  more_.notify_one();
  ahead_.wait();
  ahead_ = {};
}

void Assembly::make_folder() {
  if (folder_made_) return;
  root_.make_final_folder();
  folder_made_ = true;
}

HeadFiles& Assembly::files_of(Job& job) {
  if (!job.files)
    job.files = std::make_unique<HeadFiles>(folder_, parts_.front().manifest(), job.heads);
  return *job.files;
}

void Assembly::finish(bool quiet) {
  const auto start = Clock::now();
  const auto tell = [&](const char* what) {
    log::debug("assembly, {:.3f} s: {}", seconds_since(start), what);
  };
  end_ahead();
  for (const auto& entry : learned_) parts_.front().learn(entry);
  tell("the work ahead has ended");
  check_new_segments(checks_);
  tell("all segments are checked");
  make_folder();
  const auto& manifest = parts_.front().manifest();
  CaptureSummary summary;
  for (const auto& part : parts_) summary.non_finite += part.non_finite();
  {
    const OpenFiles open;
    SegmentFiles segments(parts_, open.segments);
    summary.buckets = write_heads(segments, open.threads, quiet);
    summary.examples = write_examples(segments);
  }
  write_file(folder_ + "/" + layout::kCardFile, dataset_card(manifest, summary));
  write_file(folder_ + "/" + layout::kStateFile, saver_state(manifest, summary).dump(2) + "\n");
}

// Takes jobs from the back: the last jobs did not work ahead and take longest.
BucketCounts Assembly::write_heads(SegmentFiles& segments, std::size_t threads, bool quiet) {
  Progress progress({.what = "files",
                     .unit = "heads",
                     .total = static_cast<std::int64_t>(count_heads(parts_.front().manifest())),
                     .quiet = quiet});
  BucketCounts counts;
  std::int64_t written = 0;
  std::mutex mutex;
  const auto take = [&]() -> std::optional<Job> {
    const std::lock_guard lock(mutex);
    if (jobs_.empty()) return {};
    auto job = std::move(jobs_.back());
    jobs_.pop_back();
    return job;
  };
  parallel_for(static_cast<std::int64_t>(threads), [&](std::int64_t) {
    while (auto job = take()) {
      auto& files = files_of(*job);
      files.append_new(segments);
      files.finish();
      const std::lock_guard lock(mutex);
      for (const auto& [bucket, rows] : files.counts()) counts[bucket] += rows;
      progress.update(written += static_cast<std::int64_t>(job->heads.heads.count));
    }
  });
  return counts;
}

std::int64_t Assembly::write_examples(SegmentFiles& segments) const {
  ExamplesWriter writer(folder_ + "/" + layout::kExamplesFile,
                        parts_.front().manifest().row_group_size);
  std::int64_t count = 0;
  ExamplesInOrder examples(segments);
  for (; examples.next(); ++count) writer.append(examples.example());
  writer.finish();
  return count;
}

}  // namespace qkscope
