// The journal of one part of a run (all of it, or one shard): which segments are whole. A line is
// added after its segment is on disk, so whatever a crash leaves behind, the journal tells how far
// the run came.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "captures/manifest.h"

namespace qkscope {

struct JournalEntry {
  std::string segment;  // file name in the part's folder
  std::int64_t examples = 0;
  std::int64_t rows = 0;  // over all heads
  std::int64_t tokens = 0;
};

class Journal {
 public:
  // Starts a part; the folder exists.
  static void create(const std::string& folder, const Manifest& manifest);
  static bool exists(const std::string& folder);

  // Reads what is there. A last line that a crash cut off does not count.
  explicit Journal(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const std::vector<JournalEntry>& entries() const { return entries_; }
  bool complete() const { return complete_; }  // the dataset's end was reached
  std::int64_t examples() const;
  std::int64_t rows() const;
  std::int64_t tokens() const;

  std::string segment_path(const std::string& name) const { return folder_ + "/" + name; }

  void add(const JournalEntry& entry);
  void mark_complete();
  // Removes what a crash left in the folder: files that the journal does not name.
  void remove_strays() const;

 private:
  void append(const Json& line);

  std::string folder_;
  Manifest manifest_;
  std::vector<JournalEntry> entries_;
  bool complete_ = false;
  std::uint64_t valid_bytes_ = 0;  // of the journal file; what follows was cut off
};

}  // namespace qkscope
