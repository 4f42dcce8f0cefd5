// The output folder of a capture: who may write to it, what it holds, how parts become a whole.
// captures/layout.h says what lies where.
#pragma once

#include <string>
#include <vector>

#include "captures/journal.h"
#include "captures/layout.h"
#include "io/file_lock.h"
#include "qkscope/captures.h"

namespace qkscope {

class DataRoot {
 public:
  explicit DataRoot(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string parts() const { return path_ + "/" + layout::kPartsFolder; }
  std::string part(const Shard& shard) const;
  std::string final_folder() const { return parts() + "/" + layout::kFinalFolder; }
  std::string state_file() const { return path_ + "/" + layout::kStateFile; }

  // One writer at a time: shards run beside each other, a run without shards and a merge alone.
  std::vector<FileLock> lock(const Shard& shard) const;
  FileLock lock_whole() const;

  bool finished() const;  // the state file, written last, is there
  // Whether the finished capture was made with this effective configuration, on whatever device and
  // from whatever commit.
  bool holds(const Json& effective) const;
  // The same of a capture that was begun and is not finished.
  bool continues(const Json& effective) const;
  // The finished capture must be of this identity, else it is bad input that says what differs.
  void check_finished(const Json& identity) const;
  // Parts must be of this identity and number of shards; head files without parts are another's.
  void check_parts(const Json& identity, const Shard& shard) const;

  std::vector<Shard> shards() const;  // whose parts are there, ascending

  // Removes the files of a finished capture, the shard's own part, and parts of other runs that are
  // not going on; nothing else.
  void remove_capture(const Json& identity, const Shard& shard) const;
  void remove_parts() const;
  // A run that was killed in its last moment leaves the parts of its finished capture behind.
  void remove_left_parts() const;

 private:
  std::string path_;
};

}  // namespace qkscope
