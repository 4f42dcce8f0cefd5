// Turns the complete parts of a run into its final files and publishes them. The bytes depend only
// on the rows: not on segments, shards, how often the run was interrupted, or what was done ahead.
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

// The files are written to a folder of their own and moved into the data root, the state file last;
// then the parts are removed. Of a run without shards most of this can be done ahead, while the
// device computes.
class Assembly {
 public:
  // `parts`: all shards in order, or the one part of a run without shards.
  Assembly(const DataRoot& root, std::vector<Journal> parts);
  ~Assembly();  // without finish() no file stays behind
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;

  // From here on, segments of the one part become rows of its files on threads of low priority:
  // those that are there, and those of learn().
  void begin_ahead();
  // A segment was added to the part, which is in the journal now. Does not wait.
  void learn(const JournalEntry& entry);

  // After the last segment. Damage, and what else goes wrong, is thrown here.
  void finish(bool quiet);

 private:
  // Some heads. The files are open from their first rows to their last.
  struct Job {
    HeadsTogether heads;
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
  std::string folder_;          // of the files until they are published
  std::vector<Journal> parts_;  // with the segments that were taken
  std::vector<PartCheck> checks_;
  std::vector<Job> jobs_;
  bool folder_made_ = false;

  std::size_t jobs_ahead_ = 0;   // the first ones
  std::int64_t rows_ahead_ = 0;  // of a head, at most
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<JournalEntry> learned_;  // and not taken yet
  std::atomic<bool> ending_ = false;  // the work ahead
  std::future<void> ahead_;
};

}  // namespace qkscope
