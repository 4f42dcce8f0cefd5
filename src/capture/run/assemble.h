// Assembles the complete parts of a capture into its final files. The bytes depend on the rows
// only, not on segments, shards, interruptions or work done ahead.
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
#include "capture/format/journal.h"
#include "capture/format/part_check.h"
#include "capture/run/head_files.h"

namespace qkscope {

// Writes to DataRoot::final_folder(). In a run without shards most of the work can be done ahead,
// while the device computes.
class Assembly {
 public:
  // `parts`: all shards in order, or the only part of a run without shards.
  Assembly(const DataRoot& root, std::vector<Journal> parts);
  ~Assembly();  // removes unfinished files
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;

  // Starts converting the segments of the only part on threads of low priority: existing segments
  // and those passed to learn().
  void begin_ahead();
  // Announces a segment that was added to the part's journal. Does not block.
  void learn(const JournalEntry& entry);

  // Writes the remaining rows and closes all files after the last segment. Throws on damaged
  // segments and on errors of the work ahead. The caller publishes the files.
  void finish(bool quiet);

 private:
  // A range of heads and their open files.
  struct Job {
    GroupHeads heads;
    std::unique_ptr<HeadFiles> files;
  };

  void work_ahead();
  bool take_segment();
  void append_ahead();
  void end_ahead();
  void make_folder();
  HeadFiles& files_of(Job& job);
  BucketCounts write_heads(SegmentFiles& segments, std::size_t threads, bool quiet);
  std::int64_t write_examples(SegmentFiles& segments) const;

  DataRoot root_;
  std::string folder_;          // root_.final_folder()
  std::vector<Journal> parts_;  // with the segments converted or being converted
  std::vector<PartCheck> checks_;
  std::vector<Job> jobs_;
  bool folder_made_ = false;

  std::size_t jobs_ahead_ = 0;   // number of leading jobs that work ahead
  std::int64_t rows_ahead_ = 0;  // limit per head
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<JournalEntry> learned_;  // waiting segments
  std::atomic<bool> ending_ = false;  // tells the work ahead to stop
  std::future<void> ahead_;
};

}  // namespace qkscope
