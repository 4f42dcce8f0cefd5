// Assembles the complete parts of a capture into its final files. The bytes depend on the rows
// only, not on segments, shards, interruptions or background work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "capture/format/data_root.h"
#include "capture/format/examples.h"
#include "capture/format/journal.h"
#include "capture/writer/part_run.h"
#include "capture/writer/part_writer.h"

namespace qkscope {

// Writes the final files of a capture to DataRoot::final_folder(). Without shards, most of the work
// can be done in the background while the device computes.
class CaptureAssembler {
 public:
  // `parts`: all shards in order, or the single part of a run without shards.
  CaptureAssembler(const DataRoot& root, std::vector<Journal> parts);
  ~CaptureAssembler();  // removes unfinished files

  // Starts converting segments on low-priority threads: existing segments and those passed to
  // enqueue_segment(). Must not be called for a sharded run.
  void start_background_assembly();
  // Queues a segment for conversion after it was added to the part's journal. Does not block.
  void enqueue_segment(const JournalEntry& entry);

  // Writes the remaining rows and closes all files. Call after the last segment. Throws a bad-input
  // error for damaged segments. The caller publishes the files.
  void finish(bool quiet);

 private:
  class HeadFiles;

  void run_background_assembly();
  void stop_background_assembly();
  void make_final_folder_once();
  BucketCounts write_heads(SegmentCache& segments, std::size_t threads, bool quiet);

  DataRoot root_;
  std::string folder_;          // root_.final_folder()
  std::vector<Journal> parts_;  // lists the segments converted so far
  std::vector<SegmentVerificationProgress> verified_;
  std::vector<HeadFiles> jobs_;
  bool folder_made_ = false;

  std::size_t background_jobs_ = 0;        // leading jobs that run in the background
  std::int64_t background_row_limit_ = 0;  // rows per head
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<JournalEntry> waiting_;  // segments not converted yet
  std::atomic<bool> ending_ = false;  // tells background assembly to stop
  std::future<void> ahead_;
};

// Writes one part (shard) of a capture, from locking the data root to publishing the files. Used by
// native captures, captures through external engines, and CaptureWriter.
class CaptureShardRun {
 public:
  // Locks and opens the part. The plan must outlive this object.
  CaptureShardRun(const PartWriterPlan& plan, ShardRunOptions run);
  ~CaptureShardRun();

  // Whether examples are still missing. All following methods except finish() require an open part.
  bool is_open() const { return writer_ != nullptr; }
  const Journal& journal() { return session_.journal(); }
  CapturePartWriter& writer() { return *writer_; }
  // Starts writing final files in the background, while the caller runs the model.
  void start_background_assembly() { assembler_->start_background_assembly(); }
  // Flushes all rows to disk; `is_complete` (all examples were added) also marks the part complete.
  void close_part(bool is_complete);

  // If the part is complete and the run has no shards, assembles and publishes the final files.
  ShardRunResult finish();

 private:
  bool quiet_;
  std::unique_ptr<CaptureAssembler> assembler_ = nullptr;  // assembler of the open part
  ShardRun session_;
  std::unique_ptr<CapturePartWriter> writer_;
};

}  // namespace qkscope
