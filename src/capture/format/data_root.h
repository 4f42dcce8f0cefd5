// The output folder of a capture: who may write to it, what it holds, how parts become a whole.
// captures/layout.h says what lies where. Links inside the folder are refused, never followed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/io/file_lock.h"
#include "base/io/open_folder.h"
#include "capture/format/journal.h"
#include "capture/format/layout.h"
#include "qkscope/captures.h"

namespace qkscope {

// The right to write to a data root.
struct DataRootLock {
  std::vector<FileLock> files;
  std::string made;  // the outermost folder that was made for it, "" where all were there
};

class DataRoot {
 public:
  explicit DataRoot(std::string path);

  const std::string& path() const { return path_; }
  std::string parts() const { return path_ + "/" + layout::kPartsFolder; }
  std::string part(const Shard& shard) const;
  std::string final_folder() const { return parts() + "/" + layout::kFinalFolder; }
  std::string state_file() const { return path_ + "/" + layout::kStateFile; }

  // One writer at a time: shards run beside each other, a run without shards and a merge alone.
  DataRootLock lock(const Shard& shard) const;
  DataRootLock lock_whole() const;

  // A link among the files of the capture or of its parts is bad input. A shard looks into its own
  // part alone: what a thousand of them do at their start must not grow with their number.
  void refuse_links(const std::optional<Shard>& own = {}) const;

  bool finished() const;  // the state file, written last, is there
  // Whether the finished capture was made with this effective configuration, on whatever device and
  // from whatever commit.
  bool holds(const Json& effective) const;
  // Whether it holds an unfinished capture that this run would go on with.
  bool continues(const Manifest& manifest) const;
  // The finished capture must be of this identity, else it is bad input that says what differs.
  void check_finished(const Json& identity) const;

  std::vector<Shard> shards() const;  // whose parts are there, ascending

  // The shard's part: the one that is there, if it is of this very run and has rows, or a new one.
  // The other parts must be of the same run and number of shards (the first few are compared; a
  // merge compares all); head files without parts are another's.
  Journal open_part(const Manifest& manifest, const Shard& shard) const;
  // Removes the shard's part if it has no rows, and then what was made for it and is empty.
  void remove_unused_part(const Shard& shard, const DataRootLock& lock) const;

  // Removes the files of a finished capture, the shard's own part, and parts of other runs that are
  // not going on; nothing else.
  void remove_capture(const Manifest& manifest, const Shard& shard) const;

  // Moves what was assembled in final_folder() to its place, the state file last: before it is
  // there nothing looks finished, and after it is there everything else is on the disk.
  void publish_final() const;

  // With the lock of the whole root.
  void remove_parts() const;
  // A run that was killed in its last moment leaves the parts of its finished capture behind.
  void remove_left_parts() const;

 private:
  void continue_part(const std::string& folder, const Manifest& manifest) const;
  void check_other_parts(const Manifest& manifest, const Shard& shard) const;
  std::vector<Shard> part_folders() const;  // ascending; some may not have begun
  void check_other_part(const Manifest& manifest, const Shard& shard, const Shard& other) const;
  FileLock lock_folder(const std::string& folder, FileLock::Mode mode) const;
  void remove_part(const OpenFolder& parts, const Shard& shard) const;

  std::string path_;
};

// Whether a run of this identity had the configuration: an identity is the effective configuration
// and more (device, commits, inputs).
bool has_configuration(const Json& identity, const Json& effective);

}  // namespace qkscope
