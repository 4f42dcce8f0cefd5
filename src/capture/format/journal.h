// The journal of one part of a run (the whole run, or one shard) lists its complete segments. A
// line is appended once its segment is on disk, so after a crash the journal shows the progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/format/manifest.h"

namespace qkscope {

struct JournalEntry {
  std::string segment;  // file name inside the folder of the part
  std::int64_t examples = 0;
  std::int64_t rows = 0;  // summed over all heads
  std::int64_t tokens = 0;
  std::int64_t non_finite = 0;  // rows whose vector holds NaN or infinity
  std::uint64_t checksum = 0;   // returned by SegmentWriter::commit()
};

struct AppendedJournalLine {
  std::size_t number = 0;
  std::string text;
  std::string segment;  // the segment that the line records; "" on the line that marks completion
};

class Journal {
 public:
  // Writes the manifest of a new part into an existing folder.
  static void create(const std::string& folder, const Manifest& manifest);
  static bool exists(const std::string& folder);
  // Whether the journal file is not empty.
  static bool has_entries(const std::string& folder);

  // Reads the journal. Each line has a checksum over itself and all earlier lines. A last line torn
  // by a crash is ignored. Throws a bad-input error for any other damage, for a segment out of
  // order and for a missing segment file.
  explicit Journal(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return *manifest_; }
  // Shares the manifest object of another part: all parts of a run need only one copy.
  void share_manifest_of(const Journal& other) { manifest_ = other.manifest_; }
  const std::vector<JournalEntry>& entries() const { return entries_; }
  bool is_complete() const { return complete_; }  // all examples of the part are stored
  std::int64_t example_count() const { return sum_over_entries(&JournalEntry::examples); }
  std::int64_t row_count() const { return sum_over_entries(&JournalEntry::rows); }
  std::int64_t token_count() const { return sum_over_entries(&JournalEntry::tokens); }
  std::int64_t non_finite_row_count() const { return sum_over_entries(&JournalEntry::non_finite); }

  std::string segment_path(const std::string& name) const { return folder_ + "/" + name; }

  void append_entry(const JournalEntry& entry);
  void mark_complete();
  // Sets a callback that receives every line appended from now on, once the line is on disk.
  void set_append_callback(std::function<void(const AppendedJournalLine&)> callback) {
    on_append_ = std::move(callback);
  }
  // Returns a journal without entries for a thread that reads segments while another thread appends
  // them. Entries are added with add_entry_without_writing(), which does not write the file.
  Journal copy_without_entries() const;
  void add_entry_without_writing(const JournalEntry& entry) { entries_.push_back(entry); }
  // Removes files that the journal does not list: leftovers of a crash.
  void remove_unlisted_files() const;

 private:
  Journal() = default;
  void read_lines();
  bool parse_line(std::string_view text);
  void append_line(Json line);
  std::int64_t sum_over_entries(std::int64_t JournalEntry::*member) const;

  std::string folder_;
  std::shared_ptr<const Manifest> manifest_;
  std::vector<JournalEntry> entries_;
  bool complete_ = false;
  std::function<void(const AppendedJournalLine&)> on_append_;
  std::uint64_t valid_bytes_ = 0;  // length of the journal file without a torn last line
  std::uint64_t check_ = 0;        // checksum of the last line
};

// Verification progress of a part that may still grow. The journal must outlive this object.
struct SegmentVerificationProgress {
  const Journal* journal;
  std::size_t segments = 0;    // segments verified so far
  std::int64_t last_row = -1;  // last dataset row of the verified segments
};

// Verifies the segments that were added since the last call: their checksums, their identity and
// counts against the journal, and that every example appears once, in order, and belongs to the
// shard. Reads segments in parallel. Throws a bad-input error that names the damaged segment.
void verify_new_segments(std::span<SegmentVerificationProgress> parts);

}  // namespace qkscope
