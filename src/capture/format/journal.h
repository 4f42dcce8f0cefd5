// The journal of one part of a run (all of it, or one shard): which segments are whole. A line is
// added after its segment is on disk, so whatever a crash leaves behind, the journal tells how far
// the run came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/format/manifest.h"

namespace qkscope {

struct JournalEntry {
  std::string segment;  // file name in the part's folder
  std::int64_t examples = 0;
  std::int64_t rows = 0;  // over all heads
  std::int64_t tokens = 0;
  std::int64_t non_finite = 0;  // rows whose vector holds NaN or infinity
  std::uint64_t checksum = 0;   // of the segment, as SegmentWriter::commit() returned it
};

// A line as it stands in the file.
struct JournalLine {
  std::size_t number = 0;
  std::string text;
  std::string segment;  // that it speaks of; "" at the end of the dataset
};

class Journal {
 public:
  // Starts a part; the folder exists.
  static void create(const std::string& folder, const Manifest& manifest);
  static bool exists(const std::string& folder);
  // Whether a run came so far that its journal says something.
  static bool has_entries(const std::string& folder);

  // Reads what is there. Each line has a checksum over itself and all lines before it. A last line
  // that a crash cut off does not count; any other damage, a segment out of its turn and one that
  // is not there are bad input.
  explicit Journal(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return *manifest_; }
  // From here on the manifest is the other's own: a thousand parts of one run keep it once.
  void share_manifest(const Journal& other) { manifest_ = other.manifest_; }
  const std::vector<JournalEntry>& entries() const { return entries_; }
  bool complete() const { return complete_; }  // the dataset's end was reached
  std::int64_t examples() const;
  std::int64_t rows() const;
  std::int64_t tokens() const;
  std::int64_t non_finite() const;

  std::string segment_path(const std::string& name) const { return folder_ + "/" + name; }

  void add(const JournalEntry& entry);
  void mark_complete();
  // Shows every line that is added from now on, after it is on the disk.
  void follow(std::function<void(const JournalLine&)> follower) { follower_ = std::move(follower); }
  // For one who reads segments while the run goes on, on another thread: the same part as if it had
  // no segments yet, and one more that was added to it. Nothing is written.
  Journal without_segments() const;
  void learn(const JournalEntry& entry) { entries_.push_back(entry); }
  // Removes what a crash left in the folder: files that the journal does not name.
  void remove_strays() const;

 private:
  Journal() = default;
  void read();
  bool take_line(std::string_view text);
  void append(Json line);
  std::int64_t sum(std::int64_t JournalEntry::*member) const;

  std::string folder_;
  std::shared_ptr<const Manifest> manifest_;
  std::vector<JournalEntry> entries_;
  bool complete_ = false;
  std::function<void(const JournalLine&)> follower_;
  std::uint64_t valid_bytes_ = 0;  // of the journal file; what follows was cut off
  std::uint64_t check_ = 0;        // of the last line
};

}  // namespace qkscope
